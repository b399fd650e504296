//! What users reported about other mounts, done again here; `F1` and the like are the rows of the collection. Those that
//! a test elsewhere covers are not repeated.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;

use common::{Trees, View, errno_of, eventually, mount_line, py, run, sh, step};
use rustix::fs::{CWD, Mode, OFlags, copy_file_range, fallocate, openat, statfs, syncfs};
use rustix::process::{Resource, Rlimit, prlimit};

/// The `f_type` of every FUSE file system (statfs(2)).
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;

as_root_and_user! {
    fn f1_f5_f7_names_made_by_rename() {
        View::of(&["a"]).within("rename", |s| {
            s.both_sh("echo x >t; mv t r; stat -c '%F %s' r; cat r; test ! -e t; echo $?");
            s.both_sh("mkdir .git; for i in 1 2 3; do (set -C; : >.git/index.lock) && rm .git/index.lock || echo refused; done; ls -A .git");
            s.both_sh("mkdir full; echo 1 >full/f; mv full moved; cat moved/f; echo 2 >g; mv -f g r; cat r; mkdir empty; mv -T empty moved; echo $?; mkdir empty2; mv -T moved empty2; ls empty2");
            s.assert_alike();
        });
    }

    fn f11_a_listing_of_a_directory_that_holds_the_mountpoint() {
        let trees = Trees::new(&[]);
        let above = trees.file("");
        let view = trees.mount(&[], &["--root", above.to_str().unwrap()]);
        view.within("ls -l", |s| {
            let entry = fs::read_dir(&s.mount).unwrap().next().unwrap().unwrap().path();
            let ran = sh(&entry, "ls -la; ls -l M; echo ended");
            assert!(ran.out.contains(" back\n") && ran.out.ends_with("ended\n"), "{ran:#?}");
        });
    }

    fn f19_locks_of_the_view_and_of_the_backing() {
        View::of(&["a"]).within("flock", |s| {
            fs::write(s.view("a/f"), "").unwrap();
            let held = File::open(s.view("a/f")).unwrap();
            held.lock().unwrap();
            assert!(File::open(s.view("a/f")).unwrap().try_lock().is_err(), "exclusive inside the view");
            File::open(s.native("a/f")).unwrap().try_lock().expect("not shared with the backing, as SEMANTICS.md says");
        });
    }

    fn f21_the_lock_of_a_killed_process() {
        View::of(&["a"]).within("flock", |s| {
            s.both_sh("flock -o f sleep 9 >/dev/null 2>&1 & sleep 0.3; flock -n f true; echo $?; kill -9 $!; wait $! 2>/dev/null; flock -w 5 f echo released");
        });
    }

    fn f23_f25_locks_after_fork_and_dup() {
        View::of(&["a"]).within("fcntl", |s| {
            s.both("who holds what", |d| py(d, r#"
import errno, fcntl, struct, subprocess
def other(kind):
    code = "import errno, fcntl, struct, sys\nf = open('f', 'r+')\ntry:\n  fcntl.fcntl(f, int(sys.argv[1]), struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)); print('free')\nexcept OSError as e: print(errno.errorcode[e.errno])"
    print(subprocess.run([sys.executable, "-c", code, str(kind)], stdout=subprocess.PIPE).stdout.decode(), end="")
def lock(f, kind, what=fcntl.F_WRLCK): fcntl.fcntl(f, kind, struct.pack("hhqqi4x", what, 0, 0, 0, 0))
posix, ofd = fcntl.F_SETLK, fcntl.F_OFD_SETLK
f = open("f", "w+")
lock(f, posix); other(posix); other(ofd)
child = os.fork()
if child == 0:
    f.close(); os._exit(0)          # Its close drops its own locks, of which it has none.
os.waitpid(child, 0); other(posix)
g = os.dup(f.fileno()); os.close(g); other(posix)   # Any close of the file drops the locks of the process.
lock(f, ofd); other(ofd); g = os.dup(f.fileno()); f.close(); other(ofd); os.close(g); other(ofd)
h = open("f", "r+"); lock(h, ofd)
if os.fork() == 0:
    h.close(); os._exit(0)          # The description lives on in the parent, and so does the lock.
os.wait(); other(ofd); lock(h, ofd, fcntl.F_UNLCK); other(ofd)
"#).ok());
        });
    }

    fn f29_tools_can_tell_what_it_is() {
        View::of(&["a"]).within("statfs", |s| {
            assert_eq!(statfs(s.view("a")).unwrap().f_type, FUSE_SUPER_MAGIC);
            let line = mount_line(&s.mount).unwrap();
            assert!(line.contains(" - fuse.rootsfs rootsfs "), "{line}");
        });
    }

    fn f31_a_poller_sees_changes_of_the_backing() {
        let trees = Trees::new(&["a"]);
        fs::write(trees.site.native("a/f"), "1").unwrap();
        trees.mount(&["a"], &[]).within("poll", |s| {
            let seen = || fs::metadata(s.view("a/f")).map(|meta| (meta.mtime_nsec(), meta.len())).unwrap();
            for n in 2..5 {
                let before = seen();
                fs::write(s.native("a/f"), "x".repeat(n)).unwrap();
                assert!(eventually(Duration::from_secs(3), || seen().0 != before.0 && seen().1 == u64::try_from(n).unwrap()));
            }
        });
    }

    fn f32_f33_f37_hard_links() {
        View::of(&["a", "b"]).within("link", |s| {
            s.both_sh("echo x >x; ln x y; [ $(stat -c %i x) = $(stat -c %i y) ] && stat -c %h x y; rm x; stat -c %h y; cat y; ln y y; echo $?");
            let crossing = errno_of(fs::hard_link(s.view("a/y"), s.view("b/y")));
            assert_eq!(crossing, "EXDEV");
        });
    }

    fn f41_f47_times_and_modes_of_copies() {
        View::of(&["a"]).within("copies", |s| {
            s.both_sh("ln -s nowhere l; touch -h -d @1000000000 l; stat -c %Y l; tar -cf t.tar l; rm l; tar -xf t.tar; stat -c '%Y %N' l; touch l 2>&1; stat -c %F nowhere");
            s.both("shutil", |d| py(d, r#"
import shutil
open("s", "w").write("text"); os.chmod("s", 0o751); os.utime("s", ns=(10**18, 10**18 + 7)); os.setxattr("s", "user.x", b"1")
shutil.copy("s", "c1"); shutil.copy2("s", "c2"); os.mkdir("t"); shutil.copytree("t", "t2"); shutil.move("c1", "t/c1")
for f in ("t/c1", "c2"): st = os.stat(f); print(oct(st.st_mode), os.listxattr(f), f == "c2" and st.st_mtime_ns, open(f).read())
shutil.make_archive("arc", "gztar", "t"); shutil.unpack_archive("arc.tar.gz", "un"); print(os.listdir("un")); shutil.rmtree("t"); print(sorted(os.listdir(".")))
"#).ok());
        });
    }

    fn f44_f67_f68_times_and_modes_of_changes() {
        View::of(&["a"]).within("changes", |s| {
            s.both_sh("umask 022; for m in 600 644 755 440; do echo a >f; chmod $m f; sed -i s/a/b/ f; stat -c %a f; cat f; rm -f f; done");
            s.both_sh("echo x >r; touch -d @1000000000 r; cat r >/dev/null; tail -c1 r >/dev/null; grep -q x r; sleep 0.1; stat -c %Y r");
            s.both("the time set before close is the last word", |d| py(d, r#"
for how in ("w", "a", "r+"):
    f = open("p", how); f.write("x" * 100000); f.flush(); os.utime(f.fileno(), (10**9, 10**9)); f.close()
    print(os.stat("p").st_mtime)
import mmap
f = open("p", "r+b"); m = mmap.mmap(f.fileno(), 0); m[0:1] = b"y"; m.flush(); os.utime(f.fileno(), (10**9, 10**9)); m.close(); f.close()
print(os.stat("p").st_mtime)
"#).ok());
            s.both_sh("cp -p r cp; stat -c %Y cp; cat cp; install -p -m 640 r in; stat -c '%Y %a' in");
        });
    }

    fn f51_f53_f83_calls_that_few_servers_know() {
        let mut view = View::of(&["a"]);
        view.within("odd calls", |s| {
            let flags = OFlags::TMPFILE | OFlags::RDWR;
            let nameless = openat(CWD, s.view("a"), flags, Mode::RWXU).map(drop).map_err(std::io::Error::from);
            assert_eq!(errno_of(nameless), "EOPNOTSUPP");
            s.both_sh("echo x >f; setfattr -n user.x -v 1 f; getfattr -d -m - f; setfattr -x user.x f; getfattr -d -m - f; sync -f f; echo $?; sync f; echo $?");
            s.both("poll, statx, fadvise, readahead, seek", |d| py(d, r#"
import select
f = os.open("f", os.O_RDWR)
p = select.poll(); p.register(f, select.POLLIN | select.POLLOUT); print(p.poll(100)[0][1], select.select([f], [f], [], 1)[0] == [f])
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_WILLNEED); print(os.lseek(f, 0, os.SEEK_DATA), os.lseek(f, 0, os.SEEK_HOLE))
print(os.preadv(f, [bytearray(1), bytearray(9)], 0), os.pwritev(f, [b"a", b"b"], 0), os.fsync(f), os.pathconf(f, "PC_NAME_MAX"), os.isatty(f))
print(os.sendfile(os.open("g", os.O_CREAT | os.O_WRONLY), f, 0, 10), open("g").read())
r, w = os.pipe(); print(os.splice(f, w, 10, offset_src=0), os.read(r, 10)) if hasattr(os, "splice") else None
"#).ok());
            step("epoll");
            // A plain file is EPERM; the kernel takes any file of FUSE, and finds it ready.
            assert_eq!(py(&s.view("a"), "import select\ne = select.epoll(); e.register(os.open('f', os.O_RDONLY)); print(e.poll(1)[0][1] & 5)").ok(), "5\n");
            let file = File::options().write(true).open(s.view("a/f")).unwrap();
            syncfs(&file).unwrap();
            fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 16).unwrap();
            assert_eq!(fs::metadata(s.native("a/f")).unwrap().len(), 1 << 16);
            assert_eq!(fs::read_dir(s.view("a")).unwrap().count(), 2);
        });
        assert_eq!(view.end(rustix::process::Signal::TERM, Duration::from_secs(5)).code(), Some(0));
    }

    fn f55_f69_replaced_and_reopened() {
        View::of(&["a"]).within("rename after close", |s| {
            s.both("a file that was replaced", |d| {
                fs::write(d.join("f"), "old").unwrap();
                fs::write(d.join("g"), "new").unwrap();
                let mut held = File::options().read(true).append(true).open(d.join("f")).unwrap();
                fs::rename(d.join("g"), d.join("f")).unwrap();
                let mut text = String::new();
                held.read_to_string(&mut text).unwrap();
                let nlink = held.metadata().unwrap().nlink();
                let closed = rustix::io::retry_on_intr(|| rustix::fs::fsync(&held)).is_ok();
                (text, nlink, closed)
            });
            s.both("written, closed, renamed and opened again at once", |d| {
                (0..300_usize)
                    .filter(|n| {
                        let content = vec![b'x'; n * 37];
                        File::create(d.join("part")).unwrap().write_all(&content).unwrap();
                        fs::rename(d.join("part"), d.join("whole")).unwrap();
                        fs::read(d.join("whole")).unwrap() != content || fs::metadata(d.join("whole")).unwrap().len() != content.len() as u64
                    })
                    .count()
            });
        });
    }

    fn f57_a_daemon_short_of_descriptors() {
        let trees = Trees::new(&["a"]);
        let made = "seq 1000 | split -l 1 -a 4 -d - f; for i in $(seq 100); do : >$i.lock; done";
        assert_eq!(sh(&trees.site.native("a"), made).code, 0);
        let view = trees.mount(&["a"], &[]);
        // Fewer than it reckoned with when it started.
        let few = Rlimit { current: Some(64), maximum: Some(64) };
        prlimit(Some(view.pid()), Resource::Nofile, few).unwrap();
        view.within("1,100 names", |s| {
            let count = |script: &str| sh(&s.view("a"), script).out;
            assert_eq!(count("ls | wc -l; ls *.lock | wc -l; ls -l 2>&1 >/dev/null | head -3"), "1100\n100\n");
            assert_eq!(count("cat f* | sort -n | uniq | wc -l; find . -name '*.lock' -size 0 | wc -l"), "1000\n100\n");
        });
    }

    fn f61_f63_copies_in_the_kernel() {
        View::of(&["a"]).within("copy_file_range", |s| {
            s.both("twice on the same descriptors", |d| {
                fs::write(d.join("from"), "0123456789".repeat(1000)).unwrap();
                let (from, to) = (File::open(d.join("from")).unwrap(), File::create(d.join("to")).unwrap());
                let copied = [4000, 4000, 4000, 4000].map(|length| copy_file_range(&from, None, &to, None, length));
                (copied, fs::read(d.join("from")).unwrap() == fs::read(d.join("to")).unwrap())
            });
            s.both_sh("head -c 3000000 /dev/urandom >r; for how in auto never; do cp --reflink=$how r c; cmp r c; echo $?; done; : >e; cp --reflink=auto e e2; stat -c %s e2");
            let always = sh(&s.view("a"), "LC_ALL=C cp --reflink=always r cloned; code=$?; stat -c %s cloned 2>/dev/null; exit $code");
            assert!(always.code == 1 && (always.err.contains("not supported") || always.err.contains("Inappropriate ioctl")), "{always:#?}");
        });
    }

    fn f65_a_file_that_grows_beside_the_view() {
        View::of(&["a"]).within("tail -f", |s| {
            fs::write(s.native("a/f"), "").unwrap();
            let mut tail = Command::new("timeout").args(["10", "tail", "-s", "0.1", "-f"]).arg(s.view("a/f")).stdout(std::process::Stdio::piped()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(300));
            File::options().append(true).open(s.native("a/f")).unwrap().write_all(b"grown").unwrap();
            let mut said = [0; 5];
            tail.stdout.take().unwrap().read_exact(&mut said).unwrap();
            tail.kill().unwrap();
            tail.wait().unwrap();
            assert_eq!(&said, b"grown");
        });
    }

    fn f71_a_running_program_is_not_overwritten() {
        View::of(&["a"]).within("ETXTBSY", |s| {
            s.both_sh("cp $(command -v sleep) nap; ./nap 9 >/dev/null 2>&1 & sleep 0.2; LC_ALL=C cp $(command -v true) nap 2>&1 | grep -o 'Text file busy'; truncate -s 0 nap 2>&1 | grep -o 'Text file busy'\n\
                kill -0 $! && echo alive; cp --remove-destination $(command -v true) nap && ./nap && kill $! && echo replaced");
        });
    }

    fn f85_names_removed_while_they_are_read() {
        View::of(&["a"]).within("20,000 names", |s| {
            let made = "mkdir many && cd many && seq 20000 | xargs touch && mkdir sub && touch sub/f";
            assert_eq!(sh(&s.native("a"), made).code, 0);
            assert_eq!(sh(&s.view("a"), "ls -f many | wc -l; find many -name '*7' -delete; ls -f many | wc -l").out, "20003\n18003\n");
            assert_eq!(sh(&s.view("a"), "rm -r many; echo $?; ls -A").out, "0\n");
        });
    }

    fn b71_b35_a_root_of_repositories_and_names_with_blanks() {
        View::of(&["a b"]).within("blanks", |s| {
            let top = s.view("a b");
            sh(&top, "mkdir ' lead' 'trail ' 'new\nline' && echo 1 >' lead/x y' && git init -q 'trail /repo' && cd 'trail /repo' && git status --porcelain").ok();
            assert_eq!(fs::read_dir(&top).unwrap().count(), 3);
            assert!(s.native("a b").join(" lead/x y").exists());
        });
    }
}

/// What only root can set up.
mod only_root {
    use super::*;

    #[test]
    fn f73_a_read_only_bind_mount_of_the_view_runs_programs() {
        common::as_root(|| {
            View::of(&["a"]).within("bind mount", |s| {
                let there = s.back.join("x");
                fs::create_dir(&there).unwrap();
                sh(&s.view("a"), "cp /bin/echo e; printf '#!/bin/sh\\n./e \"$@\"\\n' >script; chmod +x script").ok();
                let script = format!(
                    "mount --bind {0} {1} && mount -o remount,bind,ro {1} && cd {1} && ./e ran && ./script ran too; LC_ALL=C touch new 2>&1 | grep -o 'Read-only file system'",
                    s.view("a").display(), there.display()
                );
                let ran = run(15, Command::new("unshare").args(["-m", "sh", "-c", &script]));
                assert_eq!(ran.out, "ran\nran too\nRead-only file system\n", "{ran:#?}");
            });
        });
    }

    #[test]
    fn f75_other_users_and_other_namespaces() {
        common::as_root(|| {
            for (options, expected) in [(&[][..], "Permission denied"), (&["--allow-other"][..], "text")] {
                let trees = Trees::for_others(&["a"]);
                fs::write(trees.site.native("a/f"), "text").unwrap();
                fs::set_permissions(trees.site.native("a/f"), fs::Permissions::from_mode(0o644)).unwrap();
                trees.mount(&["a"], options).within("another user", move |s| {
                    let cat = format!("LC_ALL=C cat {} 2>&1", s.view("a/f").display());
                    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
                    for namespace in [&[][..], &["unshare", "-Ur"][..]] {
                        let words = [&nobody[..], namespace, &["sh", "-c", &cat]].concat();
                        let ran = run(15, Command::new(words[0]).args(&words[1..]));
                        assert!(ran.out.contains(expected), "{namespace:?} {options:?}: {ran:#?}");
                    }
                });
            }
        });
    }

    /// Overlayfs takes the view for its lower layer (B83).
    #[test]
    fn b83_a_lower_layer() {
        common::as_root(|| {
            View::of(&["a"]).within("overlay", |s| {
                fs::write(s.native("a/f"), "lower").unwrap();
                let script = "cd $0; mkdir up work m && mount -t overlay overlay -o lowerdir=$1,upperdir=up,workdir=work m && cat m/f && echo upper >m/f && echo new >m/new && cat m/f && ls m && rm m/f && ls m";
                let ran = run(15, Command::new("unshare").args(["-m", "sh", "-c", script]).arg(&s.twin).arg(s.view("a")));
                assert_eq!(ran.out, "lowerupper\nf\nnew\nnew\n", "{ran:#?}");
                assert_eq!(fs::read(s.native("a/f")).unwrap(), b"lower");
            });
        });
    }
}
