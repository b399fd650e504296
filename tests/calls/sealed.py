# A file system that is mounted read-only; "file", "dir/in" and "link" are there.
row("read", lambda: (get("file"), get("dir/in"), os.readlink("link"), sorted(os.listdir("."))))
for flags in ("WRONLY", "RDWR", "RDONLY | os.O_TRUNC", "RDWR | os.O_CREAT", "WRONLY | os.O_APPEND", "RDONLY | os.O_CREAT"):
    row(f"open O_{flags}", lambda: os.close(eval(f"os.open('file', os.O_{flags})")))
for flags in ("RDWR | os.O_CREAT", "RDWR | os.O_CREAT | os.O_EXCL", "RDONLY"):
    row(f"open of nothing O_{flags}", lambda: eval(f"os.open('new', os.O_{flags})"))
for name, act in {
    "mkdir": lambda: os.mkdir("new"), "mkdir of what is there": lambda: os.mkdir("dir"), "rmdir": lambda: os.rmdir("dir"), "rmdir of nothing": lambda: os.rmdir("new"),
    "unlink": lambda: os.unlink("file"), "unlink of nothing": lambda: os.unlink("new"), "symlink": lambda: os.symlink("x", "new"), "link": lambda: os.link("file", "new"),
    "mkfifo": lambda: os.mkfifo("new"), "rename": lambda: os.rename("file", "new"), "chmod": lambda: os.chmod("file", 0o600), "chown": lambda: os.chown("file", 1, 1),
    "utime": lambda: os.utime("file", (1, 1)), "truncate": lambda: os.truncate("file", 1), "setxattr": lambda: os.setxattr("file", "user.x", b""),
    "removexattr": lambda: os.removexattr("file", "user.x"),
}.items():
    row(name, act)
row("access", lambda: [outcome(c, "access", name, want) for name in ("file", "dir", "new") for want in (0, 2, 4)])
with opened("file", os.O_RDONLY) as fd:
    row("by descriptor", lambda: [outcome(os.fchmod, fd, 0o600), outcome(os.ftruncate, fd, 1), outcome(os.utime, fd, (1, 1)), outcome(os.fsync, fd)])
row("untouched", lambda: (get("file"), oct(os.stat("file").st_mode), os.stat("file").st_mtime))
