# open(2): what is there x how it is asked for.
import itertools, shutil, socket

def away():
    for name in ("x", "target"):
        if os.path.islink(name) or not os.path.isdir(name):
            if os.path.lexists(name):
                os.unlink(name)
        else:
            shutil.rmtree(name)

def linked(make):
    make("target")
    os.symlink("target", "x")

there = {
    "nothing": lambda: None,
    "file": lambda: put("x", b"text"),
    "file-0444": lambda: put("x", b"text", 0o444),
    "file-0000": lambda: put("x", b"text", 0),
    "directory": lambda: os.mkdir("x"),
    "link-to-file": lambda: linked(lambda to: put(to, b"text")),
    "link-to-directory": lambda: linked(os.mkdir),
    "dangling": lambda: linked(lambda to: None),
    "fifo": lambda: os.mkfifo("x"),
    "socket": lambda: socket.socket(socket.AF_UNIX).bind("x"),
}
flags = {name: getattr(os, "O_" + name) for name in ("CREAT", "EXCL", "TRUNC", "NOFOLLOW", "DIRECTORY", "PATH")}

def attempt(access, asked):
    fd = os.open("x", access | os.O_NONBLOCK | sum(flags[flag] for flag in asked), 0o640)
    try:
        return oct(os.fstat(fd).st_mode), oct(fcntl.fcntl(fd, fcntl.F_GETFL)), outcome(os.write, fd, b"new") if access else ""
    finally:
        os.close(fd)

def after():
    status = outcome(os.stat, "x")
    regular = not isinstance(status, str) and stat.S_ISREG(status.st_mode) and status.st_mode & 0o400
    return get("x") if regular else status if isinstance(status, str) else oct(status.st_mode)

for kind, make in there.items():
    for access in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        for asked in itertools.chain.from_iterable(itertools.combinations(flags, n) for n in range(4)):
            away()
            make()
            row(f"{kind} {access} {'|'.join(asked)}", lambda: (outcome(attempt, access, asked), after()))
away()

def append():
    with opened("x", os.O_CREAT | os.O_RDWR | os.O_APPEND) as fd:
        os.write(fd, b"one")
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, b"two")
        # pwrite(2) on O_APPEND appends, whatever the offset: the bug that the page describes.
        os.pwrite(fd, b"three", 0)
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)
        os.pwrite(fd, b"O", 0)
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        os.pwrite(fd, b"!", 0)
        return os.lseek(fd, 0, os.SEEK_CUR), get("x")
row("O_APPEND, taken away and given back", append)

def exclusive():
    with opened("locked", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o444) as fd:
        wrote = os.write(fd, b"through it")
        return wrote, oct(os.fstat(fd).st_mode), os.pread(fd, 20, 0), outcome(os.ftruncate, fd, 3), get("locked")
row("O_EXCL with mode 0444, and writing through it", exclusive)
row("again", exclusive)

def trunc_read_only():
    put("full", b"content")
    with opened("full", os.O_RDONLY | os.O_TRUNC) as fd:
        return os.fstat(fd).st_size, outcome(os.write, fd, b"x")
row("O_TRUNC with O_RDONLY", trunc_read_only)

def path_only():
    put("full", b"content")
    with opened("full", os.O_PATH) as fd:
        return (os.fstat(fd).st_size, outcome(os.read, fd, 1), outcome(os.fchmod, fd, 0o600), outcome(os.ftruncate, fd, 0),
                get(f"/proc/self/fd/{fd}"), outcome(os.utime, f"/proc/self/fd/{fd}", (1, 1)), os.fstat(fd).st_mtime)
row("O_PATH", path_only)

def without_atime():
    put("atime", b"text")
    os.utime("atime", (1000, 2000))
    with opened("atime", os.O_RDONLY | os.O_NOATIME) as fd:
        os.read(fd, 4)
    return os.stat("atime").st_atime
row("O_NOATIME", without_atime)

for name in ("SYNC", "DSYNC", "DIRECT"):
    def synced():
        page = mmap.mmap(-1, 4096)
        page.write(b"s" * 4096)
        with opened("synced", os.O_CREAT | os.O_RDWR | getattr(os, "O_" + name)) as fd:
            wrote = os.pwritev(fd, [page], 0)
            back = mmap.mmap(-1, 4096)
            return wrote, os.preadv(fd, [back], 0), back[:4096] == page[:4096], bool(fcntl.fcntl(fd, fcntl.F_GETFL) & getattr(os, "O_" + name))
    row(f"O_{name}", synced)

def unaligned():
    put("direct", b"d" * 8192)
    with opened("direct", os.O_RDONLY | os.O_DIRECT) as fd:
        return len(os.pread(fd, 100, 3))
row("O_DIRECT, not aligned", unaligned)
row("O_TMPFILE", lambda: os.close(os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)))
row("O_TMPFILE, read-only", lambda: os.open(".", os.O_TMPFILE, 0o600))
row("a file with a slash", lambda: (put("slash"), os.open("slash/", os.O_RDONLY)))
row("a new file with a slash", lambda: os.open("slashed/", os.O_CREAT | os.O_RDWR))
row("the empty path", lambda: os.open("", os.O_RDONLY))
for mode in (0, 0o1777, 0o4755, 0o2755, 0o6777, 0o7777):
    def created():
        old = os.umask(0o027)
        with opened(f"mode-{mode:o}", os.O_CREAT | os.O_EXCL | os.O_RDWR, mode) as fd:
            os.umask(old)
            return oct(os.fstat(fd).st_mode), os.write(fd, b"x"), oct(os.fstat(fd).st_mode)
    row(f"O_CREAT with mode {mode:o}", created)
