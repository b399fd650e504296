"""Holds everything a process can hold in a directory and, for each line on stdin, says what still works.

usage: holder.py DIRECTORY     (which holds `sub/` and a file `data` of two pages)

A probe is one JSON object on a line of stdout: what was tried -> "ok", an errno name, or a signal name. `ready` is said
first. Maps are read in children, because a revoked map kills its reader by SIGBUS.
"""

import errno
import json
import mmap
import os
import signal
import sys

top = sys.argv[1]
os.chdir(os.path.join(top, "sub"))
directory = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
path_only = os.open(os.path.join(top, "data"), os.O_PATH)
reader = os.open(os.path.join(top, "data"), os.O_RDONLY)
writer = os.open(os.path.join(top, "data"), os.O_RDWR)
closer = os.open(os.path.join(top, "data"), os.O_RDWR)
shared = mmap.mmap(writer, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
first = bytes(shared[:1])
os.pread(reader, 8192, 0)


def outcome(call):
    try:
        call()
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


def in_child(call):
    child = os.fork()
    if child == 0:
        os._exit(0 if call() else 1)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return "ok" if status == 0 else "wrong data"


def list_handle():
    os.lseek(directory, 0, os.SEEK_SET)
    return os.listdir(directory)


def sendfile():
    quiet = os.open("/dev/null", os.O_WRONLY)
    try:
        os.sendfile(quiet, reader, 0, 4096)
    finally:
        os.close(quiet)


def close():
    global closer
    if closer is not None:
        os.close(closer)
        closer = None


def probe():
    return {
        "path": outcome(lambda: os.stat(os.path.join(top, "data"))),
        "cwd: stat": outcome(lambda: os.stat("inner")),
        "cwd: list": outcome(lambda: os.listdir(".")),
        "cwd: create": outcome(lambda: os.close(os.open("made", os.O_CREAT | os.O_WRONLY))),
        "cwd: parent": outcome(lambda: os.stat("../data")),
        "directory: list": outcome(list_handle),
        "directory: openat": outcome(lambda: os.close(os.open("data", os.O_RDONLY, dir_fd=directory))),
        "directory: mkdirat": outcome(lambda: os.mkdir("made", dir_fd=directory)),
        "path descriptor: reopen": outcome(lambda: os.close(os.open(f"/proc/self/fd/{path_only}", os.O_RDONLY))),
        "cached page: pread": outcome(lambda: os.pread(reader, 4096, 0)),
        "cached page: sendfile": outcome(sendfile),
        "fstat": outcome(lambda: os.fstat(reader)),
        "pwrite": outcome(lambda: os.pwrite(writer, b"W", 4096)),
        "ftruncate": outcome(lambda: os.ftruncate(writer, 8192)),
        "fsync": outcome(lambda: os.fsync(writer)),
        "map: read": in_child(lambda: bytes(shared[:1]) == first),
        "map: write": in_child(lambda: shared.__setitem__(4097, 77) is None),
        "close": outcome(close),
    }


print("ready", flush=True)
for _ in sys.stdin:
    print(json.dumps(probe()), flush=True)
