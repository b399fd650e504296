# Rights: what other users may do, and whose it is afterwards. Run by root.
import subprocess

ANN, BOB, EVE = 2001, 2002, 2003
STAFF, CREW = 3001, 3002

def by(uid, act, groups=(), gid=None, umask=0o022):
    """What `act` comes to for another user."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgroups(list(groups))
        os.setgid(uid if gid is None else gid)
        os.setuid(uid)
        os.umask(umask)
        os.write(into, repr(outcome(act)).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return text

def whose(path):
    s = os.lstat(path)
    return s.st_uid, s.st_gid, oct(s.st_mode)

def mine(path, uid, gid=None, mode=0o644, data=b"text"):
    put(path, data)
    os.chown(path, uid, uid if gid is None else gid)
    os.chmod(path, mode)
    return path

def directory(path, mode, uid=0, gid=0):
    os.mkdir(path)
    os.chown(path, uid, gid)
    os.chmod(path, mode)
    return path

def run(*words, stdin=None):
    ran = subprocess.run(words, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return ran.returncode, ran.stdout.strip().replace("\n", " ")

def acl(path):
    return run("getfacl", "-pcn", path)

os.umask(0o022)
# `py` entered the directory as root; others start from here.
os.chmod(".", 0o755)
directory("open", 0o777)
def makes():
    put("open/f")
    os.mkdir("open/d")
    os.mkfifo("open/p")
    os.symlink("f", "open/l")
    os.mknod("open/s", stat.S_IFSOCK | 0o666)
    os.link("open/f", "open/h")
row("what is made belongs to its maker", lambda: (by(ANN, makes, gid=STAFF), [whose("open/" + name) for name in "fdplsh"]))
for mask in (0, 0o022, 0o077, 0o777):
    def masked():
        os.close(os.open(f"open/m{mask:o}", os.O_CREAT | os.O_RDWR, 0o666))
        os.mkdir(f"open/n{mask:o}", 0o777)
        os.mkfifo(f"open/o{mask:o}", 0o666)
    row(f"umask {mask:o}, once", lambda: (by(ANN, masked, umask=mask), [whose(f"open/{kind}{mask:o}") for kind in "mno"]))

directory("team", 0o770, 0, STAFF)
row("supplementary groups open a directory", lambda: (by(ANN, lambda: put("team/a"), [STAFF]), by(BOB, lambda: put("team/b"), [CREW]), by(BOB, lambda: os.listdir("team"), [CREW, STAFF]), os.listdir("team")))
mine("grouped", 0, STAFF, 0o640)
row("and a file", lambda: [by(ANN, lambda: get("grouped"), groups) for groups in ([], [STAFF], [CREW], list(range(4000, 4200)) + [STAFF])])
row("the primary group too", lambda: [by(ANN, lambda: get("grouped"), [], gid) for gid in (STAFF, CREW)])
mine("anns", ANN)
row("chgrp to one's own group, and to another", lambda: [(by(ANN, lambda: os.chown("anns", -1, gid), [STAFF]), whose("anns")) for gid in (STAFF, CREW)])
row("chown", lambda: [by(uid, lambda: os.chown("anns", target, -1)) for uid, target in ((ANN, ANN), (ANN, BOB), (BOB, BOB))])
row("chmod of another's file", lambda: [by(uid, lambda: os.chmod("anns", 0o666)) for uid in (BOB, ANN)])
row("times of another's file", lambda: [by(BOB, lambda: os.utime(name, times)) for name in ("anns", "grouped") for times in (None, (1, 1))])
row("rights of the owner come first", lambda: (mine("inverse", ANN, STAFF, 0o007), [by(uid, lambda: get("inverse"), groups) for uid, groups in ((ANN, []), (BOB, [STAFF]), (BOB, []))]))

directory("set", 0o2777, 0, STAFF)
def in_set():
    put("set/f")
    os.mkdir("set/d")
    os.close(os.open("set/g", os.O_CREAT | os.O_RDWR, 0o2775))
    os.close(os.open("set/x", os.O_CREAT | os.O_RDWR, 0o2664))
row("a set-group-ID directory", lambda: (by(ANN, in_set, umask=0), [whose("set/" + name) for name in "fdgx"]))
row("and for a member of the group", lambda: [os.unlink("set/" + name) for name in "fgx"] + [os.rmdir("set/d"), by(ANN, in_set, [STAFF], umask=0), [whose("set/" + name) for name in "fdgx"]])
mine("others", ANN, STAFF, 0o755)
row("chmod g+s by an owner who is not in the group", lambda: [(by(ANN, lambda: os.chmod("others", 0o6755), groups), whose("others")) for groups in ([], [STAFF])])

directory("sticky", 0o1777, EVE, EVE)
for name in "abc":
    mine("sticky/" + name, ANN, mode=0o666)
row("a sticky directory", lambda: [by(uid, act) for uid in (BOB, ANN) for act in (lambda: os.unlink("sticky/a"), lambda: os.rename("sticky/b", "sticky/b2"))])
row("and its owner", lambda: by(EVE, lambda: os.unlink("sticky/c")))
os.symlink("../anns", "sticky/link")
os.lchown("sticky/link", ANN, ANN)
row("links of others in a sticky directory", lambda: [by(uid, lambda: get("sticky/link")) for uid in (ANN, BOB, EVE)])
row("hard links to what is another's", lambda: [by(BOB, lambda: os.link(name, "open/" + name)) for name in ("anns", "grouped", "others")])

def mapped():
    with opened("bits") as fd:
        m = mmap.mmap(fd, 4)
        m[0:1] = b"X"
        m.flush()
def through(act):
    with opened("bits") as fd:
        act(fd)
def copied():
    with opened("grouped", os.O_RDONLY) as source:
        through(lambda fd: os.copy_file_range(source, fd, 2))
changes = {
    "write": lambda: through(lambda fd: os.write(fd, b"x")),
    "nothing written": lambda: through(lambda fd: os.write(fd, b"")),
    "pwritev of append": lambda: through(lambda fd: os.pwritev(fd, [b"x"], 0, 0x10)),
    "truncate": lambda: os.truncate("bits", 2),
    "to the same size": lambda: os.truncate("bits", 4),
    "ftruncate": lambda: through(lambda fd: os.ftruncate(fd, 2)),
    "O_TRUNC": lambda: os.close(os.open("bits", os.O_WRONLY | os.O_TRUNC)),
    "fallocate": lambda: through(lambda fd: c("fallocate", fd, 0, 0, 5000)),
    "punch": lambda: through(lambda fd: c("fallocate", fd, 3, 0, 4096)),
    "a map": mapped,
    "copy_file_range": copied,
    "chgrp": lambda: os.chown("bits", -1, os.getgid()),
    "chmod": lambda: os.chmod("bits", os.stat("bits").st_mode & 0o7777),
    "utime": lambda: os.utime("bits"),
    "setxattr": lambda: os.setxattr("bits", "user.x", b"1"),
    "link": lambda: os.link("bits", "open/bits"),
    "read": lambda: get("bits"),
}
for name, change in changes.items():
    for mode in (0o6777, 0o4766, 0o2767):
        def bits():
            results = []
            for uid, groups in ((0, []), (ANN, []), (ANN, [STAFF]), (BOB, [])):
                mine("bits", ANN, STAFF, mode)
                results.append((by(uid, change, [CREW] + groups) if name != "copy_file_range" else by(uid, change, [STAFF] + groups), whose("bits")[2], os.stat("bits").st_size))
                os.unlink("bits")
                if os.path.exists("open/bits"):
                    os.unlink("open/bits")
            return results
        row(f"set-id bits {mode:o} after {name}", bits)
def held():
    mine("held", 0, 0, 0o6700)
    with opened("held") as fd:
        return by(BOB, lambda: (os.write(fd, b"x"), os.ftruncate(fd, 2), os.fsync(fd), os.pread(fd, 5, 0), outcome(os.fchmod, fd, 0o777), outcome(get, "held"))), whose("held")
row("a descriptor that was handed over", held)
directory("private", 0o700)
put("private/in")
with opened("private", os.O_RDONLY) as fd:
    row("a directory that was handed over", lambda: by(BOB, lambda: (os.listdir(fd), outcome(os.stat, "in", dir_fd=fd), outcome(os.fchdir, fd))))
directory("search", 0o711)
put("search/in")
row("a directory to search, not to list", lambda: by(BOB, lambda: (get("search/in"), outcome(os.listdir, "search"))))

# Access control lists.
mine("listed", 0, 0, 0o600)
row("setfacl", lambda: (run("setfacl", "-m", f"u:{ANN}:rw,g:{STAFF}:r", "listed"), acl("listed"), whose("listed")))
def change(path):
    with opened(path) as fd:
        return os.write(fd, b"text")
reach = lambda path: [(by(uid, lambda: get(path), groups), by(uid, lambda: change(path), groups)) for uid, groups in ((ANN, []), (BOB, [STAFF]), (BOB, []), (EVE, [CREW]))]
row("named users and groups", lambda: reach("listed"))
row("a mask", lambda: (run("setfacl", "-m", "m::r", "listed"), reach("listed"), whose("listed")))
row("chmod is the mask", lambda: (os.chmod("listed", 0o660), acl("listed"), reach("listed")))
row("an entry for a user takes rights away", lambda: (mine("denied", 0, 0, 0o666), run("setfacl", "-m", f"u:{ANN}:-", "denied"), reach("denied")))
row("setfacl by others", lambda: [by(uid, lambda: run("setfacl", "-m", f"u:{EVE}:r", "anns")[0]) for uid in (BOB, ANN)] + [acl("anns")])
row("removed", lambda: (run("setfacl", "-b", "listed"), acl("listed"), os.listxattr("listed")))
directory("default", 0o777)
row("a default list", lambda: (run("setfacl", "-d", "-m", f"u::rwx,g::rx,o::-,u:{BOB}:rw,m::rwx", "default"), acl("default")))
def below():
    os.close(os.open("default/f", os.O_CREAT | os.O_RDWR, 0o666))
    os.close(os.open("default/narrow", os.O_CREAT | os.O_RDWR, 0o600))
    os.mkdir("default/d")
    os.mkfifo("default/p", 0o666)
row("wins over the umask", lambda: (by(ANN, below, umask=0o077), [(acl("default/" + name), whose("default/" + name)) for name in ("f", "narrow", "d", "p")]))
row("and is enforced", lambda: [by(BOB, lambda: get("default/f")), by(EVE, lambda: get("default/f"))])
row("cp -a keeps it", lambda: (run("cp", "-a", "default", "kept"), acl("kept"), acl("kept/f"), whose("kept/f")))
row("a list that is none", lambda: [outcome(os.setxattr, "listed", "system.posix_acl_access", value) for value in (b"", b"\2\0\0\0", b"x" * 12)])
row("a default list of a file", lambda: run("setfacl", "-d", "-m", "u::rwx", "listed")[0] != 0)

# Extended attributes.
row("user attributes of others", lambda: [by(BOB, lambda: [outcome(os.setxattr, name, "user.b", b"1"), outcome(os.getxattr, name, "user.b"), outcome(os.listxattr, name)]) for name in ("anns", "grouped", "sticky", "open")])
row("trusted attributes", lambda: (os.setxattr("anns", "trusted.secret", b"1"), os.listxattr("anns"), [by(uid, lambda: [outcome(os.listxattr, "anns"), outcome(os.getxattr, "anns", "trusted.secret"), outcome(os.setxattr, "anns", "trusted.secret", b""), outcome(os.removexattr, "anns", "trusted.secret")]) for uid in (ANN, BOB)]))
row("room for the names one may see", lambda: by(ANN, lambda: [c("listxattr", "anns", None, 0), outcome(c, "listxattr", "anns", ctypes.create_string_buffer(64), 1)]))
os.symlink("anns", "link")
on_link = lambda: [outcome(os.setxattr, "link", name, b"1", follow_symlinks=False) for name in ("trusted.l", "security.l", "user.l")] + [sorted(os.listxattr("link", follow_symlinks=False)), outcome(os.getxattr, "link", "trusted.l", follow_symlinks=False)]
row("attributes of a link", lambda: (on_link(), by(ANN, on_link), os.removexattr("link", "trusted.l", follow_symlinks=False), os.listxattr("link", follow_symlinks=False), sorted(os.listxattr("anns"))))
capability = lambda path="able": outcome(os.getxattr, path, "security.capability")
VALUE = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
row("file capabilities", lambda: (mine("able", ANN, ANN, 0o755), os.setxattr("able", "security.capability", VALUE), capability(), by(BOB, capability)))
row("settable by root alone", lambda: [by(uid, lambda: [outcome(os.setxattr, "able", "security.capability", VALUE), outcome(os.removexattr, "able", "security.capability")]) for uid in (ANN, BOB)])
for name, change in (("read", lambda: get("able")), ("chmod", lambda: os.chmod("able", 0o700)), ("write", lambda: open("able", "r+b").write(b"x")), ("truncate", lambda: os.truncate("able", 1)), ("chown", lambda: os.chown("able", ANN, -1))):
    for uid in (ANN, 0):
        row(f"capabilities after {name} by {'root' if uid == 0 else 'the owner'}", lambda: (os.setxattr("able", "security.capability", VALUE), by(uid, change), capability()))
os.chmod("able", 0o755)

# Users who are neither root nor nobody in particular (capabilities(7)).
def lacking(capabilities, *words):
    return run("setpriv", "--bounding-set", capabilities, *words)
mine("closed", ANN, mode=0o600)
row("root without the right to override", lambda: [lacking("-dac_override,-dac_read_search", "cat", name)[0] for name in ("anns", "closed", "inverse")] + [lacking("-chown", "chown", "7", "anns")[0], lacking("-fowner", "chmod", "600", "anns")[0]])
mine("bits", ANN, STAFF, 0o6777)
row("root without the right to keep set-id bits", lambda: (lacking("-fsetid", "sh", "-c", "echo x >>bits"), whose("bits")))
row("an ordinary user with one capability", lambda: (run("setpriv", f"--reuid={BOB}", f"--regid={BOB}", "--clear-groups", "--inh-caps=+chown", "--ambient-caps=+chown", "chown", "7", "anns"), whose("anns")))
row("a user who is root in a namespace of his own", lambda: by(ANN, lambda: run("unshare", "-r", "sh", "-c", "getfattr -m - -h anns; chown 7 anns; cat private/in held")))

class file_handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128)]
def by_handle():
    handle, mount = file_handle(128), ctypes.c_int()
    c("name_to_handle_at", AT_FDCWD, "anns", ctypes.byref(handle), ctypes.byref(mount), 0)
    with opened(".", os.O_RDONLY) as here:
        return os.read(c("open_by_handle_at", here, ctypes.byref(handle), os.O_RDONLY), 4)
row("a file by its handle", lambda: (outcome(by_handle), by(ANN, by_handle)))

# What the mount takes away: set-id programs and device nodes.
row("a set-user-ID program", lambda: (run("cp", "/usr/bin/id", "id"), os.chmod("id", 0o4755), by(ANN, lambda: run("./id", "-u"))))
row("device nodes", lambda: [by(uid, lambda: [outcome(os.mknod, "open/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))]) for uid in (ANN, 0)])
