# What else a program may ask of an open file: flags of vectors, advice about maps, hints, asynchronous calls, watches.
import select, signal, socket, time

put("f", b"0123456789" * 2000)
with opened("f") as fd:
    for name, flag in (("HIPRI", 1), ("DSYNC", 2), ("SYNC", 4), ("NOWAIT", 8), ("APPEND", 16), ("NOAPPEND", 32), ("unknown", 1 << 20)):
        row(f"RWF_{name} write", os.pwritev, fd, [b"x"], 0, flag)
        row(f"RWF_{name} read", lambda: os.pread(fd, 1, 0) and outcome(os.preadv, fd, [bytearray(4)], 0, flag))
    size = os.fstat(fd).st_size
    m = mmap.mmap(fd, size)
    for name, advice in (("NORMAL", 0), ("RANDOM", 1), ("WILLNEED", 3), ("DONTNEED", 4), ("COLD", 20), ("PAGEOUT", 21), ("POPULATE_READ", 22), ("POPULATE_WRITE", 23), ("HUGEPAGE", 14)):
        row(f"MADV_{name}", m.madvise, advice)
    row("MADV_REMOVE punches a hole", lambda: (m.madvise(9, 4096, 8192), m[4096:4100], os.pread(fd, 4, 8000), os.fstat(fd).st_size == size))
    row("mlock and mincore", lambda: (c("mlock", ctypes.addressof(ctypes.c_char.from_buffer(m)), 4096), os.fstat(fd).st_size == size))
    row("MAP_SYNC", lambda: outcome(lambda: mmap.mmap(fd, 4096, flags=0x80003)))
    row("hints and seals", lambda: [outcome(fcntl.fcntl, fd, command, struct.pack("Q", 2)) for command in (1036, 1035, 1033, 1034)])
    row("F_SETOWN, F_SETSIG", lambda: [outcome(fcntl.fcntl, fd, fcntl.F_SETOWN, os.getpid()), outcome(fcntl.fcntl, fd, fcntl.F_SETSIG, 0)])
    row("O_NONBLOCK, O_ASYNC, O_DIRECT by fcntl", lambda: [outcome(fcntl.fcntl, fd, fcntl.F_SETFL, flag) for flag in (os.O_NONBLOCK, os.O_ASYNC, os.O_DIRECT, 0)])
    row("epoll", lambda: select.epoll().register(fd))
    row("ioctls of other things", lambda: [outcome(fcntl.ioctl, fd, command, b"\0" * 64) for command in (0x5401, 0x5413, 0x1268, 0x80081272)])

def signalled():
    told = []
    signal.signal(signal.SIGIO, lambda *_: told.append(1))
    with opened(".", os.O_RDONLY) as fd:
        fcntl.fcntl(fd, fcntl.F_NOTIFY, 0x4)
        put("noticed")
        time.sleep(0.05)
    return told
row("dnotify", signalled)

class iocb(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw_flags", ctypes.c_uint32), ("opcode", ctypes.c_uint16), ("prio", ctypes.c_int16),
                ("fd", ctypes.c_uint32), ("buf", ctypes.c_uint64), ("nbytes", ctypes.c_uint64), ("offset", ctypes.c_int64), ("rest", ctypes.c_uint64 * 2)]

def asynchronous():
    context, results = ctypes.c_ulong(), []
    c("syscall", 206, 8, ctypes.byref(context))
    buffer = ctypes.create_string_buffer(b"asynchronous", 4096)
    with opened("aio", os.O_CREAT | os.O_RDWR) as fd:
        for opcode in (1, 2, 3, 0):
            block = iocb(opcode=opcode, fd=fd, buf=ctypes.addressof(buffer) if opcode < 2 else 0, nbytes=4096 if opcode < 2 else 0)
            pointer = ctypes.pointer(block)
            events = (ctypes.c_int64 * 4)()
            submitted = outcome(c, "syscall", 209, context.value, 1, ctypes.byref(pointer))
            got = outcome(c, "syscall", 208, context.value, 1, 1, ctypes.byref(events), None) if submitted == 1 else None
            results.append((submitted, got, events[2]))
    c("syscall", 207, context.value)
    return results, get("aio")[:12]
if os.uname().machine == "x86_64":
    row("io_submit", asynchronous)

def passed():
    left, right = socket.socketpair()
    with opened("f", os.O_RDONLY) as fd:
        socket.send_fds(left, [b"x"], [fd])
    _, fds, _, _ = socket.recv_fds(right, 1, 1)
    return os.pread(fds[0], 4, 10)
row("a descriptor passed through a socket", passed)
def reopened():
    with opened("gone", os.O_CREAT | os.O_RDWR) as fd:
        os.write(fd, b"still")
        os.unlink("gone")
        again = [outcome(lambda: os.read(os.open(f"/proc/self/fd/{fd}", flags), 9)) for flags in (os.O_RDONLY, os.O_RDWR)]
        return again, os.readlink(f"/proc/self/fd/{fd}").rpartition("/")[2], outcome(os.open, f"/proc/self/fd/{fd}", os.O_RDWR | os.O_TRUNC) and os.fstat(fd).st_size
row("opened again without a name", reopened)
def executed():
    put("script", b"#!/bin/sh\necho ran $0 >out\n", 0o755)
    return os.spawnv(os.P_WAIT, "./script", ["./script"]), get("out")
row("a script", executed)
def connected():
    server = socket.socket(socket.AF_UNIX)
    server.bind("sock")
    server.listen()
    client = socket.socket(socket.AF_UNIX)
    refused = outcome(socket.socket(socket.AF_UNIX).connect, "f")
    client.connect("sock")
    peer = struct.unpack("iii", server.accept()[0].getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    os.rename("sock", "sock2")
    moved = outcome(socket.socket(socket.AF_UNIX).connect, "sock2")
    server.close()
    return refused, peer == (os.getpid(), os.getuid(), os.getgid()), moved, outcome(socket.socket(socket.AF_UNIX).connect, "sock2"), outcome(socket.socket(socket.AF_UNIX).bind, "sock2")
row("a socket", connected)
def piped():
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open("pipe", os.O_WRONLY)
    os.rename("pipe", "pipe2")
    return os.write(writer, b"through"), os.read(reader, 9), outcome(os.open, "pipe2", os.O_WRONLY | os.O_NONBLOCK) != "ENXIO", oct(os.fstat(reader).st_mode)
row("a fifo", piped)
