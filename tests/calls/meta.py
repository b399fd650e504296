# Attributes: stat, times, rights, extended attributes, watches.
import pwd, select, time

class timestamp(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_int64), ("nsec", ctypes.c_uint32), ("pad", ctypes.c_int32)]

class statx(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("mask", "blksize")] + [("attributes", ctypes.c_uint64)] + [
        (name, ctypes.c_uint32) for name in ("nlink", "uid", "gid")] + [("mode", ctypes.c_uint16), ("pad", ctypes.c_uint16)] + [
        (name, ctypes.c_uint64) for name in ("ino", "size", "blocks", "attributes_mask")] + [
        (name, timestamp) for name in ("atime", "btime", "ctime", "mtime")] + [("rest", ctypes.c_uint8 * 128)]

BASIC, BTIME = 0x7FF, 0x800

def extended(path, mask=BASIC | BTIME, flags=AT_SYMLINK_NOFOLLOW):
    buffer = statx()
    c("statx", AT_FDCWD, path, flags, mask, ctypes.byref(buffer))
    return buffer

put("file", b"x" * 5000)
os.mkdir("dir")
os.symlink("file", "link")
os.symlink("nowhere", "dangling")
os.mkfifo("fifo")
for name in ("file", "dir", "link", "dangling", "fifo"):
    def fields():
        s = extended(name)
        recent = all(abs(t.sec - time.time()) < 100 for t in (s.atime, s.mtime, s.ctime))
        return hex(s.mask & BASIC), s.blksize, s.nlink, s.uid == os.getuid(), oct(s.mode), s.size, s.blocks, recent, s.ino == os.lstat(name).st_ino
    row(f"statx {name}", fields)
row("birth times", lambda: [bool(extended(name).mask & BTIME) for name in ("file", "dir", "link", "fifo")])
row("statx without a mask", lambda: extended("file", 0).size)
row("statx that may not sync, and must", lambda: [extended("file", BASIC, flags).size for flags in (0x4000, 0x2000)])
row("statx refused", lambda: [outcome(extended, "missing"), outcome(extended, "file", 1 << 31), outcome(extended, "file", BASIC, 1 << 20)])

NOW, OMIT = (1 << 30) - 1, (1 << 30) - 2
def utimens(path, atime, mtime, flags=0):
    times = struct.pack("qqqq", *atime, *mtime)
    done = outcome(c, "utimensat", AT_FDCWD, path, times, flags)
    s = os.lstat(path) if os.path.lexists(path) else None
    near = lambda ns: "now" if abs(ns / 1e9 - time.time()) < 100 else ns
    return done, s and (near(s.st_atime_ns), near(s.st_mtime_ns))
for seconds, nanos in ((0, 0), (0, 1), (1, 999_999_999), (-1, 0), (-1, 500_000_000), (-86400 * 365, 1), (-(1 << 31), 0), (-(1 << 31) - 1, 0),
                       ((1 << 31) - 1, 999_999_999), (1 << 31, 0), (1 << 32, 7), (0x37fffffff, 0), (0x380000000, 0), (1 << 40, 0)):
    row(f"utimensat {seconds}.{nanos:09}", utimens, "file", (seconds, nanos), (seconds, nanos))
row("UTIME_OMIT", lambda: [utimens("file", (1, 1), (2, 2)), utimens("file", (0, OMIT), (9, 9)), utimens("file", (8, 8), (0, OMIT)), utimens("file", (0, OMIT), (0, OMIT))])
row("UTIME_NOW", lambda: [utimens("file", (0, NOW), (0, OMIT)), utimens("file", (0, OMIT), (0, NOW)), utimens("file", (3, 3), (0, NOW)), utimens("file", (0, NOW), (0, NOW))])
row("utimensat refused", lambda: [utimens("missing", (1, 1), (1, 1)), utimens("file", (1, 1 << 30), (1, 1)), utimens("file", (1, 1), (1, 1), 1 << 20)])
row("of a dangling link", lambda: [utimens("dangling", (5, 6), (7, 8), AT_SYMLINK_NOFOLLOW), utimens("dangling", (1, 1), (1, 1))])
row("of a link and not its target", lambda: (utimens("link", (5, 6), (7, 8), AT_SYMLINK_NOFOLLOW), os.stat("file").st_mtime == 7))
row("touch -h", lambda: (os.system("touch -h -d @1234 dangling fifo dir"), [os.lstat(name).st_mtime for name in ("dangling", "fifo", "dir")]))
def kept():
    put("kept")
    with opened("kept") as fd:
        os.write(fd, b"late")
        os.utime(fd, ns=(1_111_111_111, 2_222_222_222))
    return os.stat("kept").st_mtime_ns, get("kept"), os.stat("kept").st_mtime_ns
row("set before close, kept after it", kept)
def still():
    before = os.stat("kept")
    get("kept"), os.listdir(".")
    after = os.stat("kept")
    return before.st_mtime_ns == after.st_mtime_ns, before.st_ctime_ns == after.st_ctime_ns
row("reading changes no mtime or ctime", still)
def moves(act, path="kept"):
    os.utime(path, (1, 1))
    before = os.lstat(path)
    time.sleep(0.012)
    act()
    after = os.lstat(path)
    return after.st_mtime_ns != before.st_mtime_ns, after.st_ctime_ns != before.st_ctime_ns
for name, act in (("chmod", lambda: os.chmod("kept", 0o640)), ("write", lambda: put("kept", b"1")), ("append of nothing", lambda: open("kept", "ab").close()),
                  ("truncate to the same", lambda: os.truncate("kept", 1)), ("link", lambda: os.link("kept", "kept2")), ("rename", lambda: os.rename("kept2", "kept3")),
                  ("unlink", lambda: os.unlink("kept3")), ("setxattr", lambda: os.setxattr("kept", "user.t", b"1"))):
    row(f"times that {name} moves", moves, act)
for name, act in (("create", lambda: put("dir/new")), ("rename below", lambda: os.rename("dir/new", "dir/newer")), ("unlink", lambda: os.unlink("dir/newer")), ("stat", lambda: os.stat("dir"))):
    row(f"directory times that {name} moves", moves, act, "dir")

def figures(s):
    return s.f_bsize, s.f_frsize, s.f_blocks, s.f_files, s.f_namemax
row("statvfs", lambda: figures(os.statvfs("file")))
row("fstatvfs", lambda: figures(os.fstatvfs(os.open("dir", os.O_RDONLY))))

put("right", b"#!/bin/sh\n")
for mode in (0, 0o111, 0o222, 0o444, 0o755):
    os.chmod("right", mode)
    row(f"access {mode:o}", lambda: [outcome(c, "faccessat", AT_FDCWD, "right", want, flags) for want in range(8) for flags in (0, AT_EACCESS, AT_SYMLINK_NOFOLLOW)])
row("access refused", lambda: [outcome(c, "faccessat", AT_FDCWD, name, want, 0) for name in ("missing", "file/x", "dangling", ".") for want in (0, 7)])
FCHMODAT2 = 452
row("fchmodat2", lambda: [outcome(c, "syscall", FCHMODAT2, AT_FDCWD, name, 0o600, flags) for name in ("file", "link", "fifo", "missing") for flags in (0, AT_SYMLINK_NOFOLLOW)])
row("fchmodat2 by descriptor", lambda: [outcome(c, "syscall", FCHMODAT2, os.open("file", os.O_PATH), "", 0o604, AT_EMPTY_PATH), oct(os.stat("file").st_mode)])
for mode in (0o7777, 0o6755, 0o2644, 0o1644, 0o4000):
    row(f"chmod {mode:o}", lambda: [(outcome(os.chmod, name, mode), oct(os.stat(name).st_mode)) for name in ("file", "dir", "fifo")])
os.chmod("dir", 0o755)
row("chown to what it is", lambda: [outcome(os.chown, name, os.getuid(), os.getgid(), follow_symlinks=False) for name in ("file", "link", "dangling", "fifo")])
row("chown of set-id files", lambda: (os.chmod("file", 0o6755), os.chown("file", os.getuid(), os.getgid()), oct(os.stat("file").st_mode), os.chown("file", -1, -1), oct(os.stat("file").st_mode)))
os.chmod("file", 0o644)

for name in ("file", "dir", "link", "dangling", "fifo"):
    row(f"xattrs of {name}", lambda: [outcome(os.setxattr, name, "user.one", b"1", follow_symlinks=False), outcome(os.listxattr, name, follow_symlinks=False),
                                      outcome(os.getxattr, name, "user.one", follow_symlinks=False), outcome(os.removexattr, name, "user.one", follow_symlinks=False)])
row("values of some sizes", lambda: [(outcome(os.setxattr, "file", "user.v", b"v" * size), len(outcome(os.getxattr, "file", "user.v"))) for size in (0, 1, 255, 3000, 1 << 15, 1 << 16, (1 << 16) + 1, 0)])
row("XATTR_CREATE and XATTR_REPLACE", lambda: [outcome(os.setxattr, "file", name, b"x", flags) for name in ("user.v", "user.none") for flags in (1, 2, 3, 4)])
row("names", lambda: [outcome(os.setxattr, "file", name, b"") for name in ("user.", "user", "none.x", "user." + "n" * 250, "user." + "n" * 251, "system.x", "trusted.t", "security.s", "")])
row("too small a buffer", lambda: [outcome(c, "getxattr", "file", "user.v", ctypes.create_string_buffer(9), size) for size in (0, 1)] + [outcome(c, "listxattr", "file", ctypes.create_string_buffer(9), 1)])
row("removal", lambda: [outcome(os.removexattr, "file", name) for name in ("user.v", "user.v", "user.")])
row("listed at last", lambda: sorted(os.listxattr("file")))

def watched():
    os.mkdir("w")
    fd = c("inotify_init1", os.O_NONBLOCK)
    c("inotify_add_watch", fd, "w", 0xFFF)
    put("w/f", b"text")
    os.rename("w/f", "w/g")
    get("w/g")
    os.truncate("w/g", 1)
    os.mkdir("w/d")
    os.rmdir("w/d")
    os.unlink("w/g")
    time.sleep(0.05)
    data, events = os.read(fd, 65536), []
    while data:
        _, mask, _, length = struct.unpack("iIII", data[:16])
        events.append((hex(mask), data[16:16 + length].rstrip(b"\0")))
        data = data[16 + length:]
    return events
row("inotify", watched)
class file_handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128)]
row("name_to_handle_at", lambda: c("name_to_handle_at", AT_FDCWD, "file", ctypes.byref(file_handle(128)), ctypes.byref(ctypes.c_int()), 0))
