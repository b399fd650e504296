# Trees that no path leads to the bottom of, and paths that just do (PATH_MAX: 4,096 bytes with the NUL).
def dig(levels, name):
    fd = os.open(".", os.O_PATH)
    for _ in range(levels):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_PATH | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    with opened("leaf", os.O_CREAT | os.O_RDWR) as outside:
        os.rename("leaf", "leaf", dst_dir_fd=fd)
        os.write(outside, b"deep down")
    found = os.open("leaf", os.O_RDONLY, dir_fd=fd)
    os.close(fd)
    return os.read(found, 20)

LONG = "p" * 39
row("100 levels of 39 bytes", dig, 100, LONG)
row("a path of 4,004 bytes", lambda: get(f"{LONG}/" * 100 + "leaf"))
for length in (4094, 4095, 4096):
    row(f"a path of {length} bytes, the last name missing", os.stat, f"{LONG}/" * 100 + "x" * (length - 4000))
    row(f"a path of {length} bytes, of dots and slashes", lambda: os.stat("./" * 2047 + "." * (length - 4094)).st_nlink > 1)
row("20 levels of 250 bytes, longer than a path", dig, 20, "D" * 250)
row("2,000 levels", dig, 2000, "d")
row("a path of 4,004 bytes through them", lambda: get("d/" * 2000 + "leaf"))

def walked(top, name):
    fd, levels = os.open(top, os.O_RDONLY), 1
    while name in os.listdir(fd):
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd, levels = below, levels + 1
    os.chdir(fd)
    names, above = os.listdir("."), outcome(os.getcwd)
    for _ in range(levels):
        os.chdir("..")
    return levels, names, above.endswith(f"/{name}/{name}") or above, os.path.exists(top)
row("a walk down and up", walked, LONG, LONG)
row("a rename of the top of the tree", lambda: (os.rename(LONG, "top"), get(f"top/" + f"{LONG}/" * 99 + "leaf")))
row("a walk where getcwd has no room", walked, "D" * 250, "D" * 250)
sys.stdout.flush()
row("rm -r", os.system, "rm -r top " + "D" * 250)
