# A file system of 1 MiB and 64 inodes, and no room left.
K = 1 << 10
put("first", b"1" * 100 * K)
put("other", b"o" * 10 * K)

def filled():
    with opened("fill", os.O_CREAT | os.O_RDWR) as fd:
        total = 0
        while not isinstance(wrote := outcome(os.write, fd, b"f" * 48 * K), str):
            total += wrote
        return total, wrote, os.fstat(fd).st_size, outcome(os.fsync, fd), get("fill") == b"f" * total
def figures():
    s = os.statvfs(".")
    return s.f_bsize, s.f_frsize, s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, s.f_favail, s.f_namemax
row("space, empty", figures)
row("written until it is full", filled)
row("space, full", figures)
row("what was there is whole", lambda: (get("first") == b"1" * 100 * K, get("other") == b"o" * 10 * K))

def tried(name, act):
    row(name, lambda: (outcome(act), os.stat("first").st_size, get("first") == b"1" * 100 * K))
def with_first(act):
    with opened("first") as fd:
        return act(fd)
tried("an append", lambda: with_first(lambda fd: os.pwrite(fd, b"x" * 8 * K, 100 * K)))
tried("fallocate", lambda: with_first(lambda fd: c("fallocate", fd, 0, 100 * K, 64 * K)))
tried("fallocate beyond the end", lambda: with_first(lambda fd: c("fallocate", fd, 1, 200 * K, 64 * K)))
tried("copy_file_range", lambda: with_first(lambda fd: os.copy_file_range(fd, fd, 32 * K, 0, 104 * K)))
tried("an overwrite", lambda: with_first(lambda fd: os.pwrite(fd, b"1" * 100 * K, 0)))
tried("a rename", lambda: (os.rename("other", "second"), os.rename("second", "other")))
tried("chmod", lambda: os.chmod("first", 0o600))
tried("close of what was refused", lambda: with_first(lambda fd: (outcome(os.write, fd, b""), outcome(os.fsync, fd))))

def one_write():
    os.truncate("fill", 0)
    with opened("fill") as fd:
        wrote = outcome(os.write, fd, b"z" * (2 << 20))
        return wrote, outcome(os.write, fd, b"z"), os.fstat(fd).st_size, get("fill") == b"z" * wrote
row("2 MiB in one write", one_write)

def mapped():
    os.unlink("fill")
    with opened("sparse", os.O_CREAT | os.O_RDWR) as fd:
        os.ftruncate(fd, 2 << 20)
    pid = os.fork()
    if pid == 0:
        with opened("sparse") as fd:
            m = mmap.mmap(fd, 2 << 20)
            for at in range(0, 2 << 20, 4096):
                m[at] = 1
            os._exit(0 if outcome(m.flush) == outcome(os.fsync, fd) == None else 28)
    result = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.unlink("sparse")
    return result
row("a map with no room behind it", mapped)
row("room again", lambda: (put("fill", b"a" * 200 * K), get("fill") == b"a" * 200 * K, get("first") == b"1" * 100 * K))

def inodes():
    os.mkdir("many")
    count = 0
    while not isinstance(made := outcome(os.mknod, f"many/{count}"), str):
        count += 1
    return count, made, [outcome(act, "new") for act in (os.mkdir, os.mkfifo, put, lambda name: os.symlink("x", name), lambda name: os.link("first", name))], len(os.listdir("many")), os.path.lexists("new")
row("no inode left", inodes)
