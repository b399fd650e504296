# Every file is named for the call that fails on it and the error that it fails with.
def whole(name):
    """The content, by a descriptor whose close may fail."""
    fd = os.open(name, os.O_RDWR)
    content = outcome(os.pread, fd, 9, 0)
    return content, outcome(os.close, fd)

names = sorted(os.listdir("."))
row("names", lambda: names)
for name in names:
    def used():
        fd = os.open(name, os.O_RDWR)
        calls = [outcome(os.pread, fd, 9, 0), outcome(os.pwrite, fd, b"W", 0), outcome(os.fsync, fd), outcome(os.fdatasync, fd), outcome(os.ftruncate, fd, 4),
                 outcome(c, "fallocate", fd, 0, 0, 6)]
        copy = os.dup(fd)
        return calls, outcome(os.close, copy), outcome(os.close, fd), whole(name)
    row(f"{name} used", used)
    def mapped():
        fd = os.open(name, os.O_RDWR)
        m = mmap.mmap(fd, 4)
        m[0:1] = b"M"
        flushed = outcome(m.flush)
        m.close()
        return flushed, outcome(os.fsync, fd), outcome(os.close, fd), whole(name)
    if not name.startswith("read"):
        row(f"{name} mapped", mapped)
    row(f"{name} by name", lambda: [outcome(os.chmod, name, 0o600), outcome(os.getxattr, name, "user.x"), outcome(os.unlink, name), outcome(os.stat, name) and "there"])
    if not name.startswith("open"):
        row(f"{name} truncated", os.truncate, name, 3)

row("truncation of what cannot be opened", os.truncate, "open-5", 3)
row("a reader's close", lambda: os.close(os.open("flush-5", os.O_RDONLY)))
