# Locks: flock(2), fcntl(2) of processes and of open file descriptions.
import select, signal, time

OFD_GETLK, OFD_SETLK, OFD_SETLKW = 36, 37, 38
EX, SH, UN, NB = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_UN, fcntl.LOCK_NB
put("f", b"0123456789" * 10)

def fd(flags=os.O_RDWR, name="f"):
    return os.open(name, flags)

def alone(name, act):
    """A row after which no lock is left."""
    row(name, act)
    os.closerange(3, 100)

def lock(kind, start=0, length=0):
    return struct.pack("hhqqixxxx", kind, 0, start, length, 0)

def ask(descriptor, command, kind=fcntl.F_WRLCK, start=0, length=0):
    kind, _, start, length, pid = struct.unpack("hhqqixxxx", fcntl.fcntl(descriptor, command, lock(kind, start, length)))
    return kind, start, length, pid

def child(act):
    """Runs `act` in a child that ends with it; gives what it gave."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(into, repr(outcome(act)).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return text

def holder(act):
    """A child that goes on holding what `act` took; gives its pid."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        kept = outcome(act)
        os.write(into, repr(kept).encode())
        time.sleep(30)
        os._exit(0)
    os.close(into)
    select.select([out], [], [], 5)
    os.close(out)
    return pid

def end(pid, with_signal=signal.SIGKILL):
    """Ends a child and says whether that took less than a second."""
    since = time.monotonic()
    os.kill(pid, with_signal)
    status = os.waitpid(pid, 0)[1]
    return os.waitstatus_to_exitcode(status), time.monotonic() - since < 1

take = lambda how: fcntl.flock(fd(), how | NB)
record = lambda kind=fcntl.F_WRLCK, start=0, length=0, command=fcntl.F_SETLK: ask(fd(), command, kind, start, length)[0]

def flocks():
    one = fd()
    fcntl.flock(one, EX)
    taken = [child(lambda: take(EX)), child(lambda: take(SH)), outcome(take, EX)]
    fcntl.flock(one, SH)
    shared = [child(lambda: take(EX)), child(lambda: take(SH))]
    again = outcome(fcntl.flock, one, EX | NB)
    fcntl.flock(one, UN)
    free = child(lambda: take(EX))
    reader = fd(os.O_RDONLY)
    return taken, shared, again, free, outcome(fcntl.flock, reader, EX | NB), outcome(fcntl.flock, reader, 0)
alone("flock: exclusive, shared, down and up, released", flocks)

def upgrade():
    one, two = fd(), fd()
    fcntl.flock(one, SH)
    fcntl.flock(two, SH)
    refused = outcome(fcntl.flock, one, EX | NB)
    # A conversion is not atomic: what was held may be lost (flock(2)).
    fcntl.flock(two, UN)
    return refused, outcome(fcntl.flock, one, EX | NB), outcome(fcntl.flock, two, SH | NB)
alone("flock: an upgrade against another reader", upgrade)

def inherited():
    one = fd()
    fcntl.flock(one, EX)
    closes = child(lambda: os.close(one))
    held = child(lambda: take(EX))
    two = os.dup(one)
    os.close(one)
    still = child(lambda: take(EX))
    child(lambda: fcntl.flock(two, UN))
    return closes, held, still, child(lambda: take(EX))
alone("flock: dup and fork share it, close of one keeps it, an unlock by the child ends it", inherited)

def names():
    one = fd()
    fcntl.flock(one, EX)
    os.link("f", "g")
    linked = outcome(lambda: fcntl.flock(fd(name="g"), EX | NB))
    os.rename("g", "h")
    renamed = outcome(lambda: fcntl.flock(fd(name="h"), EX | NB))
    os.unlink("h")
    return linked, renamed
alone("flock: of the file, not of its name", names)

def records():
    one = fd()
    ask(one, fcntl.F_SETLK, fcntl.F_WRLCK, 10, 10)
    seen = child(lambda: ask(fd(), fcntl.F_GETLK)[:3])
    owner = child(lambda: ask(fd(), fcntl.F_GETLK)[3] == os.getppid())
    beside = child(lambda: (record(fcntl.F_WRLCK, 0, 10), record(fcntl.F_WRLCK, 20, 0)))
    over = child(lambda: record(fcntl.F_RDLCK, 19, 1))
    ask(one, fcntl.F_SETLK, fcntl.F_RDLCK, 12, 3)
    split = child(lambda: [outcome(record, kind, start, 1) for kind, start in ((fcntl.F_RDLCK, 11), (fcntl.F_RDLCK, 13), (fcntl.F_WRLCK, 13), (fcntl.F_RDLCK, 16))])
    own = ask(one, fcntl.F_GETLK, fcntl.F_WRLCK, 0, 0)[0] == fcntl.F_UNLCK
    os.close(fd())
    return seen, owner, beside, over, split, own, child(lambda: record())
alone("fcntl: ranges, F_GETLK and its pid, a split, closing another descriptor drops all", records)

def forked():
    one = fd()
    ask(one, fcntl.F_SETLK)
    def closed():
        pid = holder(lambda: os.close(one))
        text = child(lambda: record())
        end(pid)
        return text
    return child(lambda: record()), closed(), child(lambda: record()), child(lambda: ask(one, fcntl.F_SETLK))
alone("fcntl: a fork does not inherit, and its close drops nothing of the parent's", forked)

def refused():
    reader, writer = fd(os.O_RDONLY), fd(os.O_WRONLY)
    return [outcome(lambda: ask(descriptor, command, kind)[0])
            for descriptor in (reader, writer) for command in (fcntl.F_SETLK, OFD_SETLK) for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK, 9)]
alone("fcntl: a lock needs a descriptor of its kind", refused)

def deadlock():
    one = fd()
    ask(one, fcntl.F_SETLK, fcntl.F_WRLCK, 0, 1)
    def other():
        two = fd()
        ask(two, fcntl.F_SETLK, fcntl.F_WRLCK, 1, 1)
        os.write(into, b"x")
        return ask(two, fcntl.F_SETLKW, fcntl.F_WRLCK, 0, 1)[0]
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if outcome(other) == fcntl.F_WRLCK else 1)
    os.read(out, 1)
    time.sleep(0.3)
    mine = outcome(ask, one, fcntl.F_SETLKW, fcntl.F_WRLCK, 1, 1)
    ask(one, fcntl.F_SETLK, fcntl.F_UNLCK, 0, 0)
    return mine, os.waitpid(pid, 0)[1]
alone("fcntl: EDEADLK", deadlock)

def descriptions():
    one, two = fd(), fd()
    ask(one, OFD_SETLK, fcntl.F_WRLCK, 0, 50)
    between = outcome(ask, two, OFD_SETLK, fcntl.F_WRLCK, 0, 1), ask(two, OFD_GETLK), outcome(record)
    copy = os.dup(one)
    os.close(one)
    kept = outcome(ask, two, OFD_SETLK), child(lambda: os.close(copy)), outcome(ask, two, OFD_SETLK)
    again = outcome(ask, copy, OFD_SETLK, fcntl.F_RDLCK, 0, 50)[0], outcome(ask, two, OFD_SETLK, fcntl.F_RDLCK, 0, 0)[0]
    ask(two, OFD_SETLK, fcntl.F_UNLCK)
    os.close(copy)
    return between, kept, again, ask(two, OFD_SETLK)[0], outcome(fcntl.fcntl, two, OFD_SETLK, struct.pack("hhqqixxxx", 1, 0, 0, 0, 7))
alone("open file descriptions: within a process, dup, fork, close, shared", descriptions)

def apart():
    one, two = fd(), fd()
    fcntl.flock(one, EX)
    return child(lambda: record()), outcome(fcntl.flock, two, EX | NB)
alone("flock and fcntl know nothing of each other", apart)

ways = {
    "flock": lambda: fcntl.flock(fd(), EX),
    "fcntl": lambda: ask(fd(), fcntl.F_SETLKW),
    "description": lambda: ask(fd(), OFD_SETLKW),
}
for name, wait in ways.items():
    def waited():
        first = holder(wait)
        waiter = os.fork()
        if waiter == 0:
            wait()
            os._exit(7)
        time.sleep(0.2)
        blocked = os.waitpid(waiter, os.WNOHANG) == (0, 0)
        killed = end(waiter)
        second = os.fork()
        if second == 0:
            wait()
            os._exit(5)
        time.sleep(0.2)
        ended = end(first)
        since = time.monotonic()
        got = os.waitstatus_to_exitcode(os.waitpid(second, 0)[1])
        return blocked, killed, ended, got, time.monotonic() - since < 1, child(wait) and "free"
    alone(f"{name}: a waiter is killed at once, the death of the owner lets the next one in", waited)

    def interrupted():
        first = holder(wait)
        def alarmed(*_):
            raise InterruptedError(errno.EINTR, "")
        def stopped():
            signal.signal(signal.SIGALRM, alarmed)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            return wait()
        told = child(stopped)
        end(first)
        return told
    alone(f"{name}: a signal interrupts the wait", interrupted)

def lease():
    one = fd(os.O_RDONLY)
    return outcome(fcntl.fcntl, one, fcntl.F_SETLEASE, fcntl.F_RDLCK), outcome(fcntl.fcntl, one, fcntl.F_GETLEASE)
alone("a lease", lease)
