# RLIMIT_FSIZE and the largest file.
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
K = 1 << 10
put("from", b"d" * 200 * K)
put("grown", b"g" * 90 * K)
resource.setrlimit(resource.RLIMIT_FSIZE, (100 * K, 100 * K))

def limited():
    with opened("f", os.O_CREAT | os.O_RDWR) as fd:
        return outcome(os.write, fd, b"l" * 200 * K), outcome(os.write, fd, b"l"), os.fstat(fd).st_size, outcome(os.close, os.dup(fd)), outcome(os.fsync, fd), get("f") == b"l" * 100 * K
row("write", limited)
def others():
    with opened("grown") as fd, opened("from") as source:
        tries = [outcome(os.ftruncate, fd, 100 * K + 1), outcome(c, "fallocate", fd, 0, 0, 200 * K), outcome(c, "fallocate", fd, 1, 0, 200 * K),
                 outcome(os.pwrite, fd, b"x", 100 * K), outcome(os.pwrite, fd, b"x" * 10, 100 * K - 3), outcome(os.copy_file_range, source, fd, 50 * K, 0, 90 * K),
                 outcome(os.copy_file_range, source, fd, 50 * K, 0, 100 * K)]
        os.lseek(fd, 95 * K, 0)
        return tries, outcome(os.sendfile, fd, source, 0, 50 * K), os.fstat(fd).st_size, get("grown")[:90 * K] == b"g" * 90 * K
row("the other ways to grow", others)
row("by name", lambda: (outcome(os.truncate, "grown", 1 << 20), outcome(os.truncate, "grown", 10), os.stat("grown").st_size))
def signalled():
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        with opened("f", os.O_RDWR | os.O_APPEND) as fd:
            os.write(fd, b"x")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
row("SIGXFSZ", signalled)
