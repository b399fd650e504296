# Names: rename, link, listing, long and odd names, deep trees.
import random, shutil, socket

NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4

def kinds(prefix):
    put(prefix + "file", prefix.encode())
    os.mkdir(prefix + "empty")
    os.makedirs(prefix + "full/below")
    os.symlink("nowhere", prefix + "link")
    os.mkfifo(prefix + "fifo")

for flags in (0, NOREPLACE, EXCHANGE, NOREPLACE | EXCHANGE, 8, 1 << 30):
    for source in ("file", "empty", "full", "link", "fifo", "missing"):
        for target in ("file", "empty", "full", "link", "missing"):
            def renamed():
                os.mkdir("r")
                kinds("r/a-")
                kinds("r/b-")
                done = outcome(c, "renameat2", AT_FDCWD, f"r/a-{source}", AT_FDCWD, f"r/b-{target}", flags)
                left = sorted((name, oct(os.lstat(f"r/{name}").st_mode)) for name in os.listdir("r"))
                content = [outcome(get, f"r/{name}") for name in ("a-file", "b-file") if os.path.isfile(f"r/{name}")]
                shutil.rmtree("r")
                return done, left, content
            row(f"renameat2 {flags} {source} to {target}", renamed)
put("w")
row("a whiteout", c, "renameat2", AT_FDCWD, "w", AT_FDCWD, "w2", WHITEOUT)
row("what is left of it", lambda: sorted(name for name in os.listdir(".") if name.startswith("w")))
os.makedirs("up/down")
for source, target in (("up", "up/down/x"), ("up", "up"), ("up/down", "up"), ("up/.", "y"), ("up/..", "y"), ("up/down/", "up/d2/"), ("w/", "w3")):
    row(f"rename {source} to {target}", os.rename, source, target)

put("linked", b"text")
with opened("linked", os.O_RDONLY) as fd:
    row("linkat by /proc/self/fd", c, "linkat", AT_FDCWD, f"/proc/self/fd/{fd}", AT_FDCWD, "l1", AT_SYMLINK_FOLLOW)
    row("linkat by descriptor (AT_EMPTY_PATH)", c, "linkat", fd, "", AT_FDCWD, "l2", AT_EMPTY_PATH)
    row("nlink", lambda: (os.fstat(fd).st_nlink, os.stat("l1").st_ino == os.fstat(fd).st_ino))
    for name in ("linked", "l1", "l2"):
        outcome(os.unlink, name)
    row("linkat of a file without a name", c, "linkat", AT_FDCWD, f"/proc/self/fd/{fd}", AT_FDCWD, "l3", AT_SYMLINK_FOLLOW)
row("a hard link to a directory", os.link, "up", "up2")
row("to a name that exists", lambda: (put("e1"), put("e2"), os.link("e1", "e2")))
os.symlink("e1", "sym")
row("AT_SYMLINK_FOLLOW", lambda: (os.link("sym", "hard", follow_symlinks=True), stat.S_ISREG(os.lstat("hard").st_mode)))
row("without it", lambda: (os.link("sym", "hardsym", follow_symlinks=False), os.readlink("hardsym"), os.lstat("sym").st_nlink))
for kind in (stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFDIR, stat.S_IFLNK, 0):
    row(f"mknod {kind:o}", lambda: (os.mknod(f"node-{kind:o}", kind | 0o640), oct(os.lstat(f"node-{kind:o}").st_mode)))
row("unlink of a socket and a fifo", lambda: [os.unlink(f"node-{kind:o}") for kind in (stat.S_IFSOCK, stat.S_IFIFO)])
row("symlink of 4095 bytes", lambda: (os.symlink("t" * 4095, "long"), len(os.readlink("long")), os.lstat("long").st_size))
row("symlink of nothing", os.symlink, "", "none")
row("symlink loops", lambda: (os.symlink("ring2", "ring1"), os.symlink("ring1", "ring2"), os.stat("ring1")))

# Every length, every byte.
os.mkdir("n")
chance = random.Random(3)
legal = [byte for byte in range(1, 256) if byte != ord("/")]
names = {bytes([byte]) for byte in legal if byte != ord(".")}
names |= {bytes(chance.choice(legal) for _ in range(length)) for length in range(2, 256)} - {b".."}
for name in names:
    put(b"n/" + name, name)
row("odd names of every length", lambda: (len(names), set(os.listdir(b"n")) == names, all(get(b"n/" + name) == name for name in names)))
row("their types", lambda: all(entry.is_file(follow_symlinks=False) and entry.inode() == entry.stat().st_ino for entry in os.scandir(b"n")))
row("256 bytes", os.mkdir, "n" * 256)
row("256 bytes, otherwise", lambda: [outcome(act, "m" * 256) for act in (lambda n: os.symlink("x", n), lambda n: os.link("e1", n), lambda n: os.rename("e1", n), os.mkfifo, os.unlink, os.rmdir, os.stat, os.listdir)])
shutil.rmtree("n")

# telldir(3) and seekdir(3).
libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p
libc.telldir.restype = ctypes.c_long
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
class entry(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("reclen", ctypes.c_uint16), ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]

def read(stream):
    at = libc.readdir(ctypes.c_void_p(stream))
    return ctypes.cast(at, ctypes.POINTER(entry)).contents.name if at else None

def positions():
    os.mkdir("t")
    for n in range(3000):
        put(f"t/file-{n:04}")
    stream = libc.opendir(b"t")
    order, places = [], []
    while True:
        places.append(libc.telldir(ctypes.c_void_p(stream)))
        name = read(stream)
        if name is None:
            break
        order.append(name)
    again = []
    for at in (0, 1, 2, 1500, 7, 2999, 3001, 40):
        libc.seekdir(stream, places[at])
        again.append(read(stream) == order[at])
    # While names come and go: the ones that stay are all seen, once.
    libc.seekdir(stream, places[100])
    gone = {name for name in order[100:] if name.endswith(b"5")}
    for name in gone:
        os.unlink(b"t/" + name)
    for n in range(500):
        put(f"t/new-{n}")
    seen = []
    while (name := read(stream)) is not None:
        seen.append(name)
    libc.seekdir(stream, places[1000])
    first = read(stream)
    libc.rewinddir(ctypes.c_void_p(stream))
    fresh = set()
    while (name := read(stream)) is not None:
        fresh.add(name)
    libc.closedir(ctypes.c_void_p(stream))
    stay = {name for name in order[100:] if name not in gone}
    return len(order), len(set(order)), again, stay <= set(seen), len(seen) == len(set(seen)), first in order[1000:1002], fresh == set(os.listdir(b"t")) | {b".", b".."}
row("telldir and seekdir", positions)
shutil.rmtree("t")

# The working directory.
def here():
    os.makedirs("cwd/in")
    os.chdir("cwd/in")
    before = os.getcwd().rpartition("/cwd")[2]
    os.rename("../../cwd", "../../dwc")
    moved = os.getcwd().rpartition("/dwc")[2]
    os.rmdir("../in")
    result = before, moved, outcome(os.getcwd), outcome(put, "new"), outcome(os.listdir, "."), outcome(os.stat, ".").st_nlink, outcome(os.mkdir, "x")
    os.chdir("..")
    up = os.getcwd().rpartition("/")[2]
    os.chdir("..")
    return result, up
row("moved and removed under its user", here)
put("over", b"old")
put("by", b"new")
with opened("over") as fd:
    row("rename over an open file", lambda: (os.rename("by", "over"), os.read(fd, 9), os.fstat(fd).st_nlink, os.write(fd, b"x"), get("over")))
