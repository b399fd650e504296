# Data: holes, copies, vectors, appends, maps, pipes.
import select, socket, zlib

KEEP, PUNCH, COLLAPSE, ZERO, INSERT, UNSHARE = 1, 2, 8, 16, 32, 64
K, M, G = 1 << 10, 1 << 20, 1 << 30

def filled(name, size, seed=7):
    put(name, bytes((n * seed + (n >> 8)) & 255 for n in range(4 * K)) * (size // (4 * K)))
    return name

def hash_of(name):
    return zlib.crc32(get(name))

for mode in (0, KEEP, KEEP | PUNCH, PUNCH, ZERO, ZERO | KEEP, COLLAPSE, INSERT, COLLAPSE | KEEP, UNSHARE, 1 << 20):
    def allocated(offset, length):
        filled("alloc", 64 * K)
        with opened("alloc") as fd:
            return outcome(c, "fallocate", fd, mode, offset, length), os.fstat(fd).st_size, hash_of("alloc")
    row(f"fallocate {mode}", lambda: [allocated(4 * K, 8 * K), allocated(60 * K, 20 * K), allocated(100, 1000)])
    row(f"fallocate {mode} out of range", lambda: [allocated(*range) for range in ((0, 0), (-1, 5), (1 << 62, 1 << 62))])

def blocks():
    filled("alloc", 64 * K)
    with opened("alloc") as fd:
        outcomes = []
        for mode, offset, length in ((KEEP | PUNCH, 8 * K, 8 * K), (KEEP, 64 * K, 64 * K), (0, 64 * K, 128 * K)):
            c("fallocate", fd, mode, offset, length)
            os.fsync(fd)
            outcomes.append((os.fstat(fd).st_size, os.fstat(fd).st_blocks))
        return outcomes
row("blocks after a hole, KEEP_SIZE and growth", blocks)
with opened("alloc", os.O_RDONLY) as fd:
    row("fallocate of a descriptor for reading", c, "fallocate", fd, 0, 0, 100)
row("fallocate of a directory", lambda: c("fallocate", os.open(".", os.O_RDONLY), 0, 0, 100))

def holes():
    with opened("sparse", os.O_CREAT | os.O_RDWR) as fd:
        os.ftruncate(fd, 10 * M)
        os.pwrite(fd, b"x" * 4096, 1 * M)
        os.pwrite(fd, b"y" * 4096, 5 * M)
        os.fsync(fd)
        ask = lambda at, how: outcome(os.lseek, fd, at, how)
        return [(ask(at, os.SEEK_DATA), ask(at, os.SEEK_HOLE)) for at in (0, M, M + 1, 2 * M, 5 * M + 4096, 10 * M - 1, 10 * M, 11 * M, -1)]
row("SEEK_DATA and SEEK_HOLE", holes)
with opened("sparse") as fd:
    row("lseek", lambda: [outcome(os.lseek, fd, at, how) for at, how in ((-1, 0), (0, 2), (5, 1), (-5, 2), (-(20 * M), 2), (1 << 43, 0), (3, 99))])
    row("lseek beyond what ext4 holds", os.lseek, fd, 1 << 62, 0)

def copy(source, target, count, at, to):
    done = 0
    while done < count:
        now = os.copy_file_range(source, target, count - done, at + done, to + done)
        if now == 0:
            break
        done += now
    return done

def large():
    with opened("huge", os.O_CREAT | os.O_RDWR) as source, opened("copy", os.O_CREAT | os.O_RDWR) as target:
        os.ftruncate(source, 5 * G)
        for at in (2 * G - 5, 4 * G - 5):
            os.pwrite(source, b"in between", at)
        os.pwrite(source, b"end", 5 * G - 3)
        crossed = [copy(source, target, 2 * M, at - M, at - M) for at in (2 * G, 4 * G)]
        rest = copy(source, target, 4 * G, 5 * G - M, 3 * G)
        return crossed, rest, [os.pread(target, 12, at - 5) for at in (2 * G, 4 * G, 3 * G + M)], os.fstat(target).st_size
row("copy_file_range beyond 2 and 4 GiB", large)
for name in ("huge", "copy"):
    os.unlink(name)

def small():
    filled("from", 64 * K)
    put("to")
    with opened("from") as source, opened("to") as target:
        twice = [os.copy_file_range(source, target, 10 * K), os.copy_file_range(source, target, 10 * K)]
        places = os.lseek(source, 0, 1), os.lseek(target, 0, 1)
        beyond = os.copy_file_range(source, target, 10, 64 * K), os.copy_file_range(source, target, 100 * K, 60 * K, 30 * K)
        overlaps = [outcome(os.copy_file_range, source, source, 8 * K, 0, to) for to in (4 * K, 0, 8 * K - 1)]
        beside = copy(source, source, 8 * K, 0, 64 * K)
        return twice, places, beyond, overlaps, beside, hash_of("from"), hash_of("to"), os.fstat(target).st_size
row("copy_file_range: twice, beyond the end, in one file, overlapping", small)
with opened("from", os.O_RDONLY) as source, opened("to", os.O_RDONLY) as reading, opened("to", os.O_WRONLY | os.O_APPEND) as appending, opened(".", os.O_RDONLY) as directory:
    row("copy_file_range refused", lambda: [outcome(os.copy_file_range, source, to, 10) for to in (reading, appending, directory)])
with opened("from", os.O_RDONLY) as source, opened("to") as target:
    row("FICLONE", fcntl.ioctl, target, 0x40049409, source)
row("cp --reflink=auto and --sparse", os.system, "cp --reflink=auto from auto && cmp from auto && cp --sparse=always sparse thin && cmp sparse thin")

with opened("vector", os.O_CREAT | os.O_RDWR) as fd:
    row("writev, readv", lambda: (os.writev(fd, [b"one", b"", b"two" * 5000]), os.lseek(fd, 0, 0), os.readv(fd, [bytearray(2), bytearray(9000), bytearray(9000)])))
    row("preadv2 and pwritev2", lambda: [os.pwritev(fd, [b"ab", b"cd"], 5), os.preadv(fd, [bytearray(4)], 5), os.pwritev(fd, [b"s"], 0, os.RWF_SYNC), os.pwritev(fd, [b"end"], 0, 0x10), os.fstat(fd).st_size])
    row("of 1,024 parts", lambda: (os.pwritev(fd, [bytes([n & 255]) for n in range(1024)], 0), os.pread(fd, 1024, 0) == bytes(n & 255 for n in range(1024))))
    row("at a negative place", lambda: [outcome(os.pread, fd, 1, -1), outcome(os.pwrite, fd, b"x", -1)])
    row("at the last place", lambda: outcome(os.pwrite, fd, b"xy", (1 << 63) - 2))
    row("beyond the end", lambda: (os.ftruncate(fd, 20 * K), os.pread(fd, 5, 20 * K - 2), os.pread(fd, 5, 30 * K), os.ftruncate(fd, 5), os.ftruncate(fd, 9), os.pread(fd, 20, 0)))
    row("ftruncate", lambda: [outcome(os.ftruncate, fd, size) for size in (-1, 1 << 62, 3 * G, 0)])
row("truncate", lambda: [outcome(os.truncate, name, 5) for name in ("vector", ".", "missing")] + [os.stat("vector").st_size])

def appends():
    put("log")
    def write(who):
        with opened("log", os.O_WRONLY | os.O_APPEND) as fd:
            for n in range(200):
                os.write(fd, b"%02d %03d %s\n" % (who, n, b"." * (who * 7)))
    threads = [threading.Thread(target=write, args=(who,)) for who in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    lines = get("log").splitlines()
    return len(lines), len(set(lines)), all(len(line) == 7 + 7 * int(line[:2]) for line in lines), sorted(lines) == sorted(set(lines))
row("O_APPEND of eight threads", appends)
os.unlink("log")

def maps():
    put("map", b"m" * 10000)
    with opened("map") as fd:
        shared, private = mmap.mmap(fd, 0), mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE)
        private[0:4] = b"mine"
        shared[4096:4104] = b"everyone"
        seen = os.pread(fd, 8, 4096), private[4096:4104], os.pread(fd, 4, 0)
        shared.flush()
        os.pwrite(fd, b"written", 8000)
        coherent = shared[8000:8007]
        grown = mmap.mmap(fd, 10000)
        os.ftruncate(fd, 40000)
        grown.resize(40000)
        grown[30000:30003] = b"new"
        grown.flush()
        os.ftruncate(fd, 50)
        os.ftruncate(fd, 200)
        return seen, coherent, shared[0:4], len(grown), os.pread(fd, 300, 0), get("map")[:60]
row("maps: shared, private, grown by mremap, after a truncation", maps)

def tail():
    put("tail", b"t" * 5000)
    with opened("tail") as fd:
        libc.mmap.restype = ctypes.c_void_p
        at = libc.mmap(None, ctypes.c_long(8192), 3, 1, fd, ctypes.c_long(0))
        page = (ctypes.c_char * 8192).from_address(at)
        zeros = page[5000:8192] == bytes(3192)
        page[5000:5004] = b"lost"
        c("msync", ctypes.c_void_p(at), 8192, 4)
        os.ftruncate(fd, 6000)
        c("munmap", ctypes.c_void_p(at), 8192)
        return zeros, os.fstat(fd).st_size, os.pread(fd, 10, 4990)
row("a map of the last page", tail)

def signalled():
    put("short", b"s" * 8192)
    child = os.fork()
    if child == 0:
        with opened("short") as fd:
            m = mmap.mmap(fd, 8192)
            os.ftruncate(fd, 100)
            m[5000]
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
row("a map beyond the end: SIGBUS", signalled)
row("maps that may not be", lambda: [outcome(lambda: mmap.mmap(os.open("map", flags), 100, prot=prot) and "mapped") for flags, prot in ((os.O_RDONLY, 3), (os.O_WRONLY, 1))])

def pipes():
    filled("from", 256 * K)
    out, into = os.pipe()
    with opened("from", os.O_RDONLY) as source, opened("spliced", os.O_CREAT | os.O_RDWR | os.O_TRUNC) as target:
        moved = 0
        while (now := os.splice(source, into, 64 * K)):
            while now:
                done = os.splice(out, target, now)
                now, moved = now - done, moved + done
        left, right = socket.socketpair()
        sent = os.sendfile(left.fileno(), source, 1000, 5000)
        received = right.recv(2000) == get("from")[1000:6000][:2000]
        to_file = os.sendfile(target, source, 0, 70 * K)
        return moved, sent, received, to_file, hash_of("spliced"), os.fstat(target).st_size
row("splice and sendfile, both ways", pipes)

with opened("from") as fd:
    row("sync_file_range", c, "sync_file_range", fd, 0, 4096, 7)
    row("posix_fadvise", lambda: [outcome(os.posix_fadvise, fd, 0, 0, advice) for advice in (0, 1, 2, 3, 4, 5, 99)])
    row("readahead", c, "readahead", fd, 0, 65536)
    row("syncfs", c, "syncfs", fd)
    row("fsync, fdatasync", lambda: [os.fsync(fd), os.fdatasync(fd)])
    row("lockf of a region", lambda: [os.lockf(fd, os.F_TLOCK, 100), os.lockf(fd, os.F_ULOCK, 0)])
    row("select", lambda: [len(ready) for ready in select.select([fd], [fd], [fd], 0)])
    row("fcntl", lambda: [outcome(fcntl.fcntl, fd, command, 0) for command in (fcntl.F_GETFD, fcntl.F_GETFL, fcntl.F_GETLEASE, 1032, 9999)])
    row("FIONREAD", fcntl.ioctl, fd, 0x541B, b"\0" * 4)
