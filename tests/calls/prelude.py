"""What every table of calls begins with: a call a line, with its outcome, so that two runs can be compared."""
import ctypes, errno, fcntl, mmap, os, stat, struct, sys, threading

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EACCESS, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = -100, 0x100, 0x200, 0x400, 0x1000


def c(function, *args):
    """Calls a function of the C library that gives an int; strings go as bytes, numbers as longs."""
    long = lambda arg: ctypes.c_long(arg) if isinstance(arg, int) else arg.encode() if isinstance(arg, str) else arg
    result = getattr(libc, function)(*map(long, args))
    if result < 0:
        raise OSError(ctypes.get_errno(), function)
    return result


def outcome(act, *args, **more):
    try:
        return act(*args, **more)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


def row(name, act, *args, **more):
    print(name, outcome(act, *args, **more), sep="\t")


def put(path, data=b"", mode=0o644):
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, mode)


def get(path):
    with open(path, "rb") as file:
        return file.read()


class opened:
    """A descriptor for the length of a `with`."""

    def __init__(self, path, flags=os.O_RDWR, mode=0o644):
        self.fd = os.open(path, flags, mode)

    def __enter__(self):
        return self.fd

    def __exit__(self, *_):
        os.close(self.fd)
