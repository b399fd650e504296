//! What programs do to files, done in the view and to a plain directory: the outcome must be the same, and so must the
//! trees afterwards.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use common::{STEP, Trees, View, errno_of, eventually, mount_line, step};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags, copy_file_range,
    fallocate, fsync, getxattr, linkat, listxattr, mknodat, removexattr, renameat_with, seek, setxattr, statvfs,
};

fn io<T>(result: rustix::io::Result<T>) -> String {
    errno_of(result.map_err(std::io::Error::from))
}

as_root_and_user! {
    fn names() {
        View::of(&["a", "b"]).within("names", |s| {
            s.both("create", |d| errno_of(fs::write(d.join("f"), "text")));
            s.both("stat of nothing", |d| errno_of(fs::metadata(d.join("nothing"))));
            s.both("O_EXCL on a name that exists", |d| errno_of(File::create_new(d.join("f"))));
            s.both("mkdir", |d| errno_of(fs::create_dir(d.join("dir"))));
            s.both("mkdir again", |d| errno_of(fs::create_dir(d.join("dir"))));
            s.both("create below", |d| errno_of(fs::write(d.join("dir/inner"), "inner")));
            s.both("a file as a directory", |d| errno_of(fs::read(d.join("f/x"))));
            s.both("a directory as a file", |d| errno_of(fs::read(d.join("dir"))));
            s.both("rmdir of a full directory", |d| errno_of(fs::remove_dir(d.join("dir"))));
            s.both("unlink of a directory", |d| errno_of(fs::remove_file(d.join("dir"))));
            s.both("rmdir of a file", |d| errno_of(fs::remove_dir(d.join("f"))));
            s.both("a link inside", |d| {
                (errno_of(symlink("dir/inner", d.join("l"))), fs::read_link(d.join("l")).unwrap(), fs::read(d.join("l")).unwrap())
            });
            s.both("O_NOFOLLOW on a link", |d| {
                errno_of(OpenOptions::new().read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(d.join("l")))
            });
            s.both("a dangling link", |d| (errno_of(symlink("nowhere", d.join("dangling"))), errno_of(fs::read(d.join("dangling")))));
            s.both("a loop", |d| (errno_of(symlink("loop", d.join("loop"))), errno_of(fs::read(d.join("loop")))));
            s.both("hard link", |d| {
                let linked = errno_of(fs::hard_link(d.join("f"), d.join("h")));
                let (f, h) = (fs::metadata(d.join("f")).unwrap(), fs::metadata(d.join("h")).unwrap());
                (linked, f.ino() == h.ino(), f.nlink(), h.nlink())
            });
            s.both("hard link to a link", |d| io(linkat(CWD, d.join("l"), CWD, d.join("l2"), AtFlags::empty())));
            s.both("rename", |d| errno_of(fs::rename(d.join("h"), d.join("dir/moved"))));
            s.both("rename of nothing", |d| errno_of(fs::rename(d.join("h"), d.join("x"))));
            s.both("rename over a full directory", |d| {
                fs::create_dir(d.join("other")).unwrap();
                errno_of(fs::rename(d.join("other"), d.join("dir")))
            });
            s.both("rename below itself", |d| errno_of(fs::rename(d.join("dir"), d.join("dir/x"))));
            s.both("rename of a directory; its children follow", |d| {
                let file = File::open(d.join("dir/inner")).unwrap();
                let renamed = errno_of(fs::rename(d.join("dir"), d.join("renamed")));
                (renamed, file.metadata().unwrap().len(), errno_of(fs::write(d.join("renamed/g"), "g")), errno_of(fs::metadata(d.join("dir"))))
            });
            s.both("RENAME_NOREPLACE", |d| {
                io(renameat_with(CWD, d.join("f"), CWD, d.join("renamed/inner"), RenameFlags::NOREPLACE))
            });
            s.both("RENAME_EXCHANGE", |d| {
                let done = io(renameat_with(CWD, d.join("f"), CWD, d.join("renamed/inner"), RenameFlags::EXCHANGE));
                (done, fs::read(d.join("f")).unwrap(), fs::read(d.join("renamed/inner")).unwrap())
            });
            s.both("lock files: create, rename, again", |d| {
                (0..200)
                    .map(|_| (errno_of(File::create_new(d.join("x.lock"))), errno_of(fs::rename(d.join("x.lock"), d.join("x")))))
                    .filter(|outcome| (outcome.0.as_str(), outcome.1.as_str()) != ("ok", "ok"))
                    .collect::<Vec<_>>()
            });
            s.both("fifo", |d| io(mknodat(CWD, d.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0)));
            s.both("socket", |d| {
                // sun_path holds 108 bytes, too few for the whole path.
                common::py(d, "import socket\nsocket.socket(socket.AF_UNIX).bind('socket')").code
            });
            s.both_sh("test -p fifo && test -S socket && stat -c '%F %a' fifo");
            s.both("unlink", |d| errno_of(fs::remove_file(d.join("x"))));
            s.both("unlink again", |d| errno_of(fs::remove_file(d.join("x"))));
            s.both("rmdir", |d| errno_of(fs::remove_dir(d.join("other"))));
            s.both("a name of 256 bytes", |d| errno_of(fs::write(d.join("n".repeat(256)), "")));
            s.both("names of 1 to 255 bytes", |d| {
                let dir = d.join("lengths");
                fs::create_dir(&dir).unwrap();
                let name = |length: usize| std::ffi::OsString::from(String::from_utf8(vec![b'a' + u8::try_from(length % 26).unwrap(); length]).unwrap());
                for length in 1..=255 {
                    fs::write(dir.join(name(length)), [0]).unwrap();
                }
                let listed = fs::read_dir(&dir).unwrap().filter(|e| e.as_ref().unwrap().metadata().unwrap().len() == 1).count();
                (listed, (1..=255).all(|length| dir.join(name(length)).exists()))
            });
            s.both("odd bytes", |d| {
                let odd: [&[u8]; 5] = [b" ", b"new\nline", b"\xff\xfe", b"...", "\u{e4}\u{1f600}".as_bytes()];
                odd.map(|name| errno_of(fs::write(d.join(std::ffi::OsStr::from_bytes(name)), name)))
            });
            s.both("2,000 names, and all of them removed in one pass", |d| {
                let dir = d.join("many");
                fs::create_dir(&dir).unwrap();
                for n in 0..2000 {
                    File::create(dir.join(format!("name-{n:04}"))).unwrap();
                }
                let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
                names.sort();
                names.dedup();
                for entry in fs::read_dir(&dir).unwrap().take(1900) {
                    fs::remove_file(entry.unwrap().path()).unwrap();
                }
                (names.len(), fs::read_dir(&dir).unwrap().count())
            });
            s.assert_alike();
        });
    }

    fn contents() {
        View::of(&["a"]).within("contents", |s| {
            s.both("read and write at offsets", |d| {
                let file = File::options().read(true).write(true).create(true).truncate(true).open(d.join("f")).unwrap();
                file.write_all_at(b"tail", 10_000).unwrap();
                file.write_all_at(b"head", 0).unwrap();
                let mut all = Vec::new();
                (&file).read_to_end(&mut all).unwrap();
                (all, file.metadata().unwrap().len())
            });
            s.both("1 MiB and 9 bytes in one write", |d| {
                let bytes: Vec<u8> = (0..(1 << 20) + 9).map(|n: u32| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
                fs::write(d.join("big"), &bytes).unwrap();
                fs::read(d.join("big")).unwrap() == bytes
            });
            s.both("truncate", |d| {
                let file = File::options().write(true).open(d.join("f")).unwrap();
                [3, 20_000, 5].map(|length| (errno_of(file.set_len(length)), fs::metadata(d.join("f")).unwrap().len()))
            });
            s.both("O_TRUNC", |d| {
                File::create(d.join("big2")).unwrap().write_all(b"x").unwrap();
                File::create(d.join("big2")).unwrap().metadata().unwrap().len()
            });
            s.both("write to a descriptor that is for reading", |d| errno_of(File::open(d.join("f")).unwrap().write_at(b"x", 0)));
            s.both("fallocate", |d| {
                let file = File::options().read(true).write(true).create_new(true).open(d.join("holes")).unwrap();
                file.write_all_at(&[7; 64 << 10], 0).unwrap();
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let outcome = [
                    io(fallocate(&file, FallocateFlags::empty(), 0, 128 << 10)),
                    io(fallocate(&file, punch, 16 << 10, 16 << 10)),
                ];
                fsync(&file).unwrap();
                let seeks = [SeekFrom::Hole(0), SeekFrom::Data(16 << 10), SeekFrom::Data(1 << 30)].map(|to| seek(&file, to).map_err(|e| e.raw_os_error()));
                (outcome, seeks, file.metadata().unwrap().len())
            });
            s.both("copy_file_range", |d| {
                let (from, to) = (File::open(d.join("big")).unwrap(), File::create_new(d.join("copied")).unwrap());
                let (mut at, mut there) = (4096, 0);
                let copied = copy_file_range(&from, Some(&mut at), &to, Some(&mut there), 100_000).map_err(|e| e.raw_os_error());
                (copied, at, there, fs::read(d.join("copied")).unwrap() == fs::read(d.join("big")).unwrap()[4096..104_096])
            });
            s.both("fsync, fdatasync, fsync of a directory", |d| {
                let file = File::options().append(true).open(d.join("f")).unwrap();
                [errno_of(file.sync_all()), errno_of(file.sync_data()), errno_of(File::open(d).unwrap().sync_all())]
            });
            s.both("appends of two processes", |d| {
                let script = "for w in 1 2; do (i=0; while [ $i -lt 300 ]; do echo \"$w-$i\"; i=$((i+1)); done >>log) & done; wait; sort -u log | wc -l; wc -l <log";
                common::sh(d, script).ok()
            });
            fs::remove_file(s.view("a/log")).unwrap();
            fs::remove_file(s.twin.join("log")).unwrap();
            s.both("a shared map, read by another process", |d| {
                common::py(d, r#"
import mmap, subprocess
with open("map", "wb") as f: f.write(b"." * 8192)
f = open("map", "r+b")
m = mmap.mmap(f.fileno(), 0)
m[0:5] = b"first"; m[5000:5004] = b"page"
m.flush()
print(subprocess.run(["head", "-c", "5", "map"], stdout=subprocess.PIPE).stdout)
second = mmap.mmap(os.open("map", os.O_RDONLY), 0, prot=mmap.PROT_READ)
print(second[5000:5004], second[:5])
m[0:5] = b"again"
print(second[:5])
f.write(b"WRITE"); f.flush()
print(second[:5])
private = mmap.mmap(os.open("map", os.O_RDONLY), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
private[0:1] = b"p"
print(second[:1])
m.close()
"#).ok()
            });
            s.both("O_DIRECT, or its refusal, does no harm", |d| common::sh(d, "dd if=big of=direct bs=64k count=4 2>/dev/null; cmp -n 262144 big direct").code);
            s.both("a fifo carries data", |d| common::sh(d, "mkfifo p; (echo through >p) & timeout 5 cat p; wait; rm p").out);
            s.assert_alike();
        });
    }

    fn attributes() {
        View::of(&["a"]).within("attributes", |s| {
            s.both("chmod", |d| {
                fs::write(d.join("f"), "text").unwrap();
                [0o600, 0o755, 0o444, 0o4711, 0o640].map(|mode| {
                    let done = errno_of(fs::set_permissions(d.join("f"), fs::Permissions::from_mode(mode)));
                    (done, fs::metadata(d.join("f")).unwrap().mode())
                })
            });
            s.both("a write takes the set-user-id bit away", |d| {
                common::sh(d, "cp f s; chmod 6755 s; echo more >>s; stat -c %a s").ok()
            });
            s.both("utimens", |d| {
                let at = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
                let file = File::options().write(true).open(d.join("f")).unwrap();
                let done = errno_of(file.set_times(FileTimes::new().set_accessed(at).set_modified(at)));
                let meta = fs::metadata(d.join("f")).unwrap();
                (done, meta.mtime(), meta.mtime_nsec(), meta.atime())
            });
            s.both("a change moves mtime and ctime", |d| {
                let before = fs::metadata(d.join("f")).unwrap();
                File::options().append(true).open(d.join("f")).unwrap().write_all(b"!").unwrap();
                let after = fs::metadata(d.join("f")).unwrap();
                (after.mtime() > before.mtime(), after.ctime() >= before.ctime())
            });
            s.both("extended attributes", |d| {
                let path = d.join("f");
                let mut space = [0u8; 256];
                let set = io(setxattr(&path, "user.colour", b"blue", XattrFlags::empty()));
                let again = io(setxattr(&path, "user.colour", b"red", XattrFlags::CREATE));
                let size = getxattr(&path, "user.colour", &mut space).map_err(|e| e.raw_os_error());
                let value = space[..4].to_vec();
                let short = io(getxattr(&path, "user.colour", &mut [0u8; 2]));
                let names = listxattr(&path, &mut space).map(|size| space[..size].to_vec()).map_err(|e| e.raw_os_error());
                let gone = (io(removexattr(&path, "user.colour")), io(getxattr(&path, "user.colour", &mut [0u8; 9])));
                (set, again, size, value, short, names, gone)
            });
            s.both("statfs", |d| {
                let v = statvfs(d).unwrap();
                (v.f_bsize, v.f_blocks, v.f_namemax)
            });
            s.both("access(2)", |d| common::sh(d, "chmod 000 f; for t in -r -w -x; do [ $t f ]; echo $?; done; chmod 644 f").out);
            for mask in ["000", "022", "027", "077"] {
                s.both_sh(&format!("umask {mask}; : >u{mask}; mkdir ud{mask}; mkfifo up{mask}; stat -c '%n %a' u{mask} ud{mask} up{mask}"));
            }
            s.both_sh("umask 022; mkdir set; chmod g+s set; mkdir set/below; stat -c '%a %G' set/below; touch set/f; stat -c %G set/f");
            s.both_sh("cp f plain && chmod 644 plain && sed -i s/text/TEXT/ plain && stat -c %a plain && cat plain");
            s.both_sh("tar -cf t.tar f plain && mkdir un && tar -xf t.tar -C un && cmp f un/f && rm t.tar");
            s.both_sh("cp -a set copied && stat -c '%a %s' copied/f");
            s.assert_alike();
        });
    }

    fn inode_flags() {
        View::of(&["a"]).within("flags", |s| {
            s.both_sh("touch f; mkdir d; chattr +d f d; lsattr -d f d; chattr -d f; lsattr f; lsattr -p f; lsattr -R . >/dev/null");
            s.both_sh("mkfifo p; lsattr p");
            // Immutable, which only root may set: then nothing changes, and nothing is lost.
            s.both_sh("echo kept > i; chattr +i i; echo $?; echo no > i; echo no >> i; rm -f i; mv i j; ln i k; chmod 600 i; cat i; chattr -i i; rm i");
            // One that may only be appended to, by whoever comes and by whoever has it open.
            s.both_sh("echo 1 > p1; chattr +a p1; echo $?; echo 2 >> p1; echo 3 > p1; cat p1; chattr -a p1; rm p1");
            s.both("chattr +a and +i on an open file", |dir| {
                let program = "
import subprocess
for flag, extra in (('+a', 0), ('+a', os.O_APPEND), ('+i', 0)):
    fd = os.open('open', os.O_RDWR | os.O_CREAT | extra, 0o644)
    os.close(os.dup(fd))
    done = subprocess.run(['chattr', flag, 'open'], stderr=subprocess.DEVNULL).returncode
    try:
        print(flag, done, os.write(fd, b'late'), os.fstat(fd).st_size)
    except OSError as error:
        print(flag, done, error)
    os.close(fd)
    subprocess.run(['chattr', '-ai', 'open'], stderr=subprocess.DEVNULL)
os.unlink('open')";
                common::py(dir, program).ok()
            });
            s.both("an access list takes nothing away from an open file", |dir| {
                let program = "
import subprocess
fd = os.open('listed', os.O_RDWR | os.O_CREAT, 0o644)
os.close(os.dup(fd))
print(subprocess.run(['setfacl', '-m', 'u::r--', 'listed']).returncode, os.write(fd, b'late'), os.fsync(fd))
os.close(fd)
os.unlink('listed')";
                common::py(dir, program).ok()
            });
            s.assert_alike();
        });
    }

    fn descriptors_outlive_names() {
        View::of(&["a"]).within("descriptors", |s| {
            let open = |path: &Path| File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
            let alive = |mut file: File| {
                let nlink = file.metadata().unwrap().nlink();
                file.write_all(b"still here").unwrap();
                file.rewind().unwrap();
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                let changed = [
                    errno_of(file.set_len(5)),
                    errno_of(file.set_permissions(fs::Permissions::from_mode(0o600))),
                    errno_of(file.sync_all()),
                    errno_of(file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH))),
                ];
                (nlink, text, changed, file.metadata().unwrap().len(), file.metadata().unwrap().mode() & 0o777)
            };
            s.both("unlinked but open", |d| {
                let file = open(&d.join("f"));
                fs::remove_file(d.join("f")).unwrap();
                (alive(file), errno_of(fs::metadata(d.join("f"))))
            });
            s.both("renamed over", |d| {
                fs::write(d.join("old"), "").unwrap();
                fs::write(d.join("new"), "new").unwrap();
                let file = open(&d.join("old"));
                fs::rename(d.join("new"), d.join("old")).unwrap();
                (alive(file), fs::read(d.join("old")).unwrap())
            });
            s.both("renamed away", |d| {
                let file = open(&d.join("here"));
                fs::rename(d.join("here"), d.join("there")).unwrap();
                (alive(file), fs::read(d.join("there")).unwrap())
            });
            s.both("a name that was unlinked and made again is another file", |d| {
                let old = open(&d.join("again"));
                fs::remove_file(d.join("again")).unwrap();
                let new = open(&d.join("again"));
                (&new).write_all(b"new").unwrap();
                (old.metadata().unwrap().len(), new.metadata().unwrap().len())
            });
            s.both("a directory that was removed while open", |d| {
                fs::create_dir(d.join("dir")).unwrap();
                let dir = File::open(d.join("dir")).unwrap();
                fs::remove_dir(d.join("dir")).unwrap();
                (errno_of(dir.metadata()), fs::read_dir(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&dir))).map(Iterator::count).ok())
            });
            s.both_sh("mkdir -p deep/er && cd deep/er && pwd -P | sed 's|.*/deep|deep|' && mv ../../deep ../../moved && /bin/pwd | sed 's|.*/moved|moved|'");
            s.assert_alike();
        });
    }

    fn processes() {
        View::of(&["a"]).within("processes", |s| {
            s.both_sh("printf '#!/bin/sh\\necho ran $1\\n' >tool && chmod +x tool && ./tool well");
            s.both_sh("cp \"$(command -v sleep)\" nap && ./nap 0");
            s.both("ETXTBSY", |d| common::sh(d, "./nap 3 & p=$!; sleep 0.3; (echo x >nap) 2>&1 | grep -o 'Text file busy'; kill $p").out);
            s.both("locks", |d| {
                common::py(d, r#"
import fcntl, subprocess, sys
other = '''
import errno, fcntl, sys
f = open("lock", "r+")
for kind in (fcntl.flock, fcntl.lockf):
    try: kind(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print("got it")
    except OSError as e: print(errno.errorcode[e.errno])
'''
ask = lambda: print(subprocess.run([sys.executable, "-c", other], stdout=subprocess.PIPE).stdout.decode())
f = open("lock", "w+")
fcntl.flock(f, fcntl.LOCK_EX); ask()
fcntl.flock(f, fcntl.LOCK_UN); fcntl.lockf(f, fcntl.LOCK_EX, 10, 0); ask()
fcntl.lockf(f, fcntl.LOCK_UN); ask()
"#).ok()
            });
            s.both("a waiter for a lock can be killed", |d| {
                common::sh(d, "flock lock sleep 4 & h=$!; sleep 0.2; flock lock true & w=$!; sleep 0.2; kill -9 $w; wait $w; echo $?; kill $h").out
            });
            s.both("a socket takes connections", |d| {
                common::py(d, "import socket\na=socket.socket(socket.AF_UNIX); a.bind('s'); a.listen()\nb=socket.socket(socket.AF_UNIX); b.connect('s'); b.send(b'hi'); print(a.accept()[0].recv(2))").ok()
            });
            s.both("sqlite in WAL mode", |d| {
                common::py(d, "import sqlite3\nc=sqlite3.connect('x.db'); print(c.execute('pragma journal_mode=wal').fetchone())\nc.execute('create table t(a)'); c.executemany('insert into t values(?)', [(i,) for i in range(500)]); c.commit()\nprint(sqlite3.connect('x.db').execute('select count(*), sum(a) from t').fetchone())").ok()
            });
        });
    }

    fn the_top_directory() {
        let view = View::of(&["a", "b"]);
        let generation = view.status()["generation"].to_string();
        view.within("top", move |s| {
            let listed = |path: &Path| {
                let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name()).collect();
                names.sort();
                names
            };
            assert_eq!(listed(&s.mount), ["a", "b"]);
            for (name, outcome) in [
                ("create", errno_of(File::create(s.view("new")))),
                ("mkdir", errno_of(fs::create_dir(s.view("new")))),
                ("symlink", errno_of(symlink("a", s.view("new")))),
                ("fifo", io(mknodat(CWD, s.view("new"), FileType::Fifo, Mode::RWXU, 0))),
                ("socket", io(mknodat(CWD, s.view("new"), FileType::Socket, Mode::RWXU, 0))),
                ("rename", errno_of(fs::rename(s.view("a"), s.view("c")))),
                ("rmdir", errno_of(fs::remove_dir(s.view("a")))),
            ] {
                assert_eq!(outcome, "EPERM", "{name} at the top");
            }
            assert_eq!(errno_of(fs::metadata(s.view("twin"))), "ENOENT");
            assert_eq!(listed(&s.mount), ["a", "b"]);
            fs::write(s.native("a/f"), "f").unwrap();
            for to in ["f", "new"] {
                let outcome = errno_of(fs::rename(s.view("a/f"), s.view(to)));
                assert!(outcome == "EPERM" || outcome == "EXDEV", "{outcome}");
            }

            step("virtual attributes");
            let value = |path: &Path, name: &str| {
                let mut space = [0u8; 4096];
                getxattr(path, name, &mut space).map(|size| String::from_utf8(space[..size].to_vec()).unwrap())
            };
            assert_eq!(value(&s.mount, "user.rootsfs.generation").unwrap(), generation);
            assert_eq!(value(&s.mount, "user.rootsfs.state").unwrap(), "active");
            assert_eq!(value(&s.view("a"), "user.rootsfs.uri").unwrap(), format!("file://{}", s.native("a").display()));
            for path in [s.mount.clone(), s.view("a")] {
                let mut space = [0u8; 4096];
                let size = listxattr(&path, &mut space).unwrap();
                assert!(!String::from_utf8_lossy(&space[..size]).contains("rootsfs"), "listed, so cp -a would copy them");
            }

            let line = mount_line(&s.mount).unwrap();
            let flags: Vec<_> = line.split(' ').nth(5).unwrap().split(',').collect();
            assert!(flags.contains(&"nosuid") && flags.contains(&"nodev"), "{line}");
        });
    }

    fn between_roots() {
        View::of(&["a", "b"]).within("between roots", |s| {
            fs::write(s.view("a/f"), "moves").unwrap();
            assert_eq!(errno_of(fs::rename(s.view("a/f"), s.view("b/f"))), "EXDEV");
            assert_eq!(errno_of(fs::hard_link(s.view("a/f"), s.view("b/f"))), "EXDEV");
            common::sh(&s.mount, "mv a/f b/f && mkdir a/d && echo x >a/d/x && mv a/d b/").ok();
            assert_eq!(fs::read(s.native("b/f")).unwrap(), b"moves");
            assert!(s.native("b/d/x").exists() && !s.native("a/f").exists() && !s.native("a/d").exists());
            common::sh(&s.mount, "cp -a b/. a/ && diff -r a b").ok();
        });
    }

    fn symbolic_links() {
        let trees = Trees::new(&["a", "b", "outside"]);
        let site = &trees.site;
        fs::write(site.native("outside/secret"), "secret").unwrap();
        fs::create_dir(site.native("a/sub")).unwrap();
        fs::write(site.native("a/f"), "inside").unwrap();
        fs::write(site.native("b/f"), "other").unwrap();
        for (target, link) in [
            (site.native("a/f"), "a/absolute"),
            (site.native("b/f"), "a/absolute-to-b"),
            ("../f".into(), "a/sub/up"),
            ("../outside/secret".into(), "a/out"),
            (site.native("outside/secret"), "a/absolute-out"),
            (site.native("outside"), "a/dir-out"),
            ("dir-out/secret".into(), "a/by-way-of"),
            ("/proc/self/fd/0".into(), "a/magic"),
            ("../../../../../../../../etc/hostname".into(), "a/far"),
            (site.native("nothing"), "a/dangling-out"),
        ] {
            symlink(target, site.native(link)).unwrap();
        }
        trees.mount(&["a", "b"], &[]).within("symbolic links", |s| {
            for (link, holds) in [("a/absolute", "inside"), ("a/absolute-to-b", "other"), ("a/sub/up", "inside")] {
                step(link);
                assert_eq!(fs::read_to_string(s.view(link)).unwrap(), holds, "{link}");
            }
            for link in ["a/out", "a/absolute-out", "a/dir-out/secret", "a/by-way-of", "a/magic", "a/far", "a/dangling-out"] {
                step(link);
                assert_eq!(errno_of(fs::metadata(s.view(link))), "EACCES", "{link}");
                assert_eq!(errno_of(File::create(s.view(link))), "EACCES", "{link}");
            }
            for directory in ["a/dir-out/", "a/dir-out/."] {
                assert_eq!(errno_of(fs::read_dir(s.view(directory))), "EACCES", "a slash must not help: {directory}");
            }
            for link in ["a/out", "a/dangling-out"] {
                assert!(fs::symlink_metadata(s.view(link)).unwrap().is_symlink());
                assert_eq!(errno_of(fs::read_link(s.view(link))), "EACCES", "readlink {link}");
            }
            for target in ["/etc/hostname", "../outside", "../../x", "/proc/self/root"] {
                assert_eq!(errno_of(symlink(target, s.view("a/made"))), "EPERM", "{target}");
            }
            assert_eq!(errno_of(symlink("sub/../f", s.view("a/made"))), "ok");
            assert_eq!(fs::read(s.view("a/made")).unwrap(), b"inside");
            assert_eq!(fs::read(s.native("outside/secret")).unwrap(), b"secret");
        });
    }

    fn read_only() {
        let trees = Trees::new(&["a"]);
        fs::write(trees.site.native("a/f"), "text").unwrap();
        trees.mount(&["a"], &["--read-only"]).within("read-only", |s| {
            assert_eq!(fs::read(s.view("a/f")).unwrap(), b"text");
            for (name, outcome) in [
                ("write", errno_of(File::options().write(true).open(s.view("a/f")))),
                ("create", errno_of(File::create(s.view("a/new")))),
                ("mkdir", errno_of(fs::create_dir(s.view("a/new")))),
                ("chmod", errno_of(fs::set_permissions(s.view("a/f"), fs::Permissions::from_mode(0o600)))),
                ("rename", errno_of(fs::rename(s.view("a/f"), s.view("a/g")))),
                ("unlink", errno_of(fs::remove_file(s.view("a/f")))),
                ("setxattr", io(setxattr(s.view("a/f"), "user.x", b"x", XattrFlags::empty()))),
            ] {
                assert_eq!(outcome, "EROFS", "{name}");
            }
        });
    }

    fn a_single_file_as_root() {
        let trees = Trees::new(&["a"]);
        fs::write(trees.site.native("a/notes.txt"), "one").unwrap();
        fs::write(trees.site.native("a/other"), "no").unwrap();
        trees.mount(&["a/notes.txt"], &[]).within("file root", |s| {
            let names: Vec<_> = fs::read_dir(&s.mount).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(names, ["notes.txt"]);
            fs::write(s.view("notes.txt"), "two").unwrap();
            assert_eq!(fs::read(s.native("a/notes.txt")).unwrap(), b"two");
            step("an editor's atomic save, outside");
            fs::write(s.native("a/.tmp"), "three").unwrap();
            fs::rename(s.native("a/.tmp"), s.native("a/notes.txt")).unwrap();
            assert!(eventually(Duration::from_secs(5), || fs::read(s.view("notes.txt")).is_ok_and(|text| text == b"three")));
        });
    }

    fn changes_from_outside_are_seen() {
        let trees = Trees::new(&["a"]);
        fs::write(trees.site.native("a/f"), "first").unwrap();
        trees.mount(&["a"], &[]).within("changes from outside", |s| {
            let seen = |what: &str, ready: &dyn Fn() -> bool| {
                step(what);
                assert!(eventually(Duration::from_secs(3), ready), "{what}: not seen within 3 s");
            };
            assert_eq!(fs::read(s.view("a/f")).unwrap(), b"first");
            assert_eq!(errno_of(fs::metadata(s.view("a/new"))), "ENOENT");
            assert_eq!(fs::read_dir(s.view("a")).unwrap().count(), 1);
            fs::write(s.native("a/f"), "other").unwrap();
            seen("new content of the same length", &|| fs::read(s.view("a/f")).is_ok_and(|text| text == b"other"));
            fs::write(s.native("a/f"), "longer than before").unwrap();
            seen("a new size", &|| fs::metadata(s.view("a/f")).is_ok_and(|meta| meta.len() == 18));
            fs::write(s.native("a/new"), "new").unwrap();
            seen("a name that was missing", &|| fs::read(s.view("a/new")).is_ok_and(|text| text == b"new"));
            seen("its listing", &|| fs::read_dir(s.view("a")).unwrap().count() == 2);
            fs::remove_file(s.native("a/new")).unwrap();
            seen("a name that went", &|| errno_of(fs::metadata(s.view("a/new"))) == "ENOENT");
            fs::write(s.native("a/.tmp"), "replaced").unwrap();
            fs::rename(s.native("a/.tmp"), s.native("a/f")).unwrap();
            seen("a file that was replaced", &|| fs::read(s.view("a/f")).is_ok_and(|text| text == b"replaced"));
            fs::set_permissions(s.native("a/f"), fs::Permissions::from_mode(0o711)).unwrap();
            seen("a mode", &|| fs::metadata(s.view("a/f")).is_ok_and(|meta| meta.mode() & 0o777 == 0o711));
        });
    }

    fn a_root_that_contains_the_mountpoint() {
        let trees = Trees::new(&["a"]);
        let above = trees.file("");
        let view = trees.mount(&["a"], &[]);
        view.roots("add", &[above.to_str().unwrap()]).ok();
        view.within("find", move |s| {
            step("find over a view that contains itself");
            let listed = common::sh(&s.mount, "find . -maxdepth 12 | wc -l").out;
            assert!(listed.trim().parse::<u32>().unwrap() < 200, "{listed}");
            assert!(eventually(STEP, || fs::read_dir(&s.mount).is_ok()));
        });
    }

    fn nested_roots() {
        let trees = Trees::new(&["a"]);
        fs::create_dir(trees.site.native("a/inner")).unwrap();
        fs::write(trees.site.native("a/inner/f"), "f").unwrap();
        let view = trees.mount(&["a", "a/inner"], &[]);
        view.within("both ways", |s| {
            assert_eq!(fs::read(s.view("a/inner/f")).unwrap(), b"f");
            assert_eq!(fs::read(s.view("inner/f")).unwrap(), b"f");
        });
        view.roots("remove", &["inner"]).ok();
        view.within("the inner one removed", |s| {
            assert_eq!(errno_of(fs::read(s.view("inner/f"))), "ENOENT");
            assert_eq!(fs::read(s.view("a/inner/f")).unwrap(), b"f");
        });
    }
}

/// What only root can do.
mod only_root {
    use super::*;

    #[test]
    fn owners_and_device_nodes() {
        common::as_root(|| {
            let trees = Trees::new(&["a"]);
            let null = rustix::fs::makedev(1, 3);
            mknodat(CWD, trees.site.native("a/null"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), null)
                .unwrap();
            mknodat(CWD, trees.site.twin.join("null"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), null)
                .unwrap();
            trees.mount(&["a"], &[]).within("owners and devices", move |s| {
                s.both("chown", |d| {
                    fs::write(d.join("f"), "").unwrap();
                    let done = errno_of(std::os::unix::fs::chown(d.join("f"), Some(12), Some(34)));
                    let meta = fs::metadata(d.join("f")).unwrap();
                    (done, meta.uid(), meta.gid())
                });
                s.both("lchown", |d| {
                    symlink("f", d.join("l")).unwrap();
                    (
                        errno_of(std::os::unix::fs::lchown(d.join("l"), Some(7), None)),
                        fs::metadata(d.join("f")).unwrap().uid(),
                    )
                });
                assert_eq!(errno_of(File::open(s.view("a/null"))), "EACCES");
                assert_eq!(errno_of(File::options().write(true).open(s.view("a/null"))), "EACCES");
                for kind in [FileType::CharacterDevice, FileType::BlockDevice] {
                    assert_eq!(io(mknodat(CWD, s.view("a/made"), kind, Mode::RWXU, null)), "EPERM");
                }
                s.assert_alike();
            });
        });
    }
}
