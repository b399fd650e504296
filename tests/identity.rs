//! One number for one file, over the whole view and for as long as its root is in it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirEntryExt, MetadataExt, symlink};
use std::path::Path;
use std::time::Duration;

use common::{Mounted, Trees, View, errno_of, eventually, sh, step};

/// Every object below `top` by path, with its inode number and links.
fn numbers(top: &Path) -> BTreeMap<String, (u64, u64)> {
    let list = sh(top, "find . -mindepth 1 -printf '%P %i %n\\n'").ok();
    let line = |line: &str| {
        let mut words = line.split(' ');
        (words.next().unwrap().into(), (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap()))
    };
    list.lines().map(line).collect()
}

/// Files, directories, links of both kinds: the same everywhere, so that fresh file systems give the same numbers.
fn plant(top: &Path) {
    for n in 0..20 {
        fs::create_dir_all(top.join(format!("d{}", n % 4))).unwrap();
        fs::write(top.join(format!("d{}/f{n}", n % 4)), format!("{} {n}", top.display()).repeat(100)).unwrap();
        fs::hard_link(top.join(format!("d{}/f{n}", n % 4)), top.join(format!("h{n}"))).unwrap();
    }
    symlink("h1", top.join("l")).unwrap();
    fs::hard_link(top.join("l"), top.join("l2")).unwrap();
}

/// Makes the kernel forget what nobody uses. Only root can.
fn drop_caches() {
    if rustix::process::geteuid().is_root() {
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    }
}

as_root_and_user! {
    fn a_number_stays() {
        let trees = Trees::new(&["a", "b"]);
        for root in ["a", "b"] {
            plant(&trees.site.native(root));
        }
        trees.mount(&["a", "b"], &[]).within("numbers", |s| {
            let first = numbers(&s.mount);
            for round in 0..3 {
                step(format!("round {round}"));
                drop_caches();
                assert_eq!(numbers(&s.mount), first, "a number changed");
            }
            for root in ["a", "b"] {
                let links = |of: &dyn Fn(&str) -> (u64, u64)| {
                    (0..20).map(|n| (of(&format!("d{}/f{n}", n % 4)), of(&format!("h{n}")))).collect::<Vec<_>>()
                };
                let viewed = links(&|path| first[&format!("{root}/{path}")]);
                assert!(viewed.iter().all(|(a, b)| a == b && a.1 == 2), "hard links: {viewed:?}");
                let backing = numbers(&s.native(root));
                assert!(backing.iter().all(|(path, (_, nlink))| first[&format!("{root}/{path}")].1 == *nlink));
            }
            let count = |numbers: &BTreeMap<String, (u64, u64)>| numbers.values().map(|(ino, _)| *ino).collect::<BTreeSet<_>>().len();
            // Two roots, each with four directories, twenty files of two names and a link of two names.
            assert!(first.len() == 2 * 47 && (2 * 26..=2 * 27).contains(&count(&first)), "{} names, {} numbers", first.len(), count(&first));
            step("d_ino");
            for path in ["", "a", "a/d1", "b"] {
                for entry in fs::read_dir(s.view(path)).unwrap() {
                    let entry = entry.unwrap();
                    assert_eq!(entry.ino(), entry.path().symlink_metadata().unwrap().ino(), "{}", entry.path().display());
                }
            }
        });
    }

    fn links_are_counted() {
        View::of(&["a"]).within("links", |s| {
            s.both("nlink of files and directories", |d| {
                let nlink = |name: &str| fs::symlink_metadata(d.join(name)).map_or(0, |meta| meta.nlink());
                fs::write(d.join("f"), "").unwrap();
                let file = File::open(d.join("f")).unwrap();
                let mut seen = vec![nlink("f")];
                for n in 0..5 {
                    fs::hard_link(d.join("f"), d.join(format!("l{n}"))).unwrap();
                    seen.push(nlink("l0"));
                }
                fs::remove_file(d.join("f")).unwrap();
                seen.extend([nlink("l0"), nlink("l4"), file.metadata().unwrap().nlink()]);
                fs::write(d.join("g"), "").unwrap();
                fs::rename(d.join("g"), d.join("l1")).unwrap();
                seen.extend([nlink("l0"), nlink("l1")]);
                fs::create_dir(d.join("dir")).unwrap();
                for n in 0..3 {
                    fs::create_dir(d.join(format!("dir/{n}"))).unwrap();
                    seen.push(nlink("dir"));
                }
                fs::rename(d.join("dir/0"), d.join("out")).unwrap();
                fs::remove_dir(d.join("dir/1")).unwrap();
                seen.extend([nlink("dir"), nlink("out")]);
                seen
            });
            step("links made and removed on the backing");
            fs::hard_link(s.native("a/l0"), s.native("a/more")).unwrap();
            let expected = fs::metadata(s.native("a/l0")).unwrap().nlink();
            let right = |nlink| eventually(Duration::from_secs(3), || fs::metadata(s.view("a/l2")).unwrap().nlink() == nlink);
            assert!(right(expected));
            fs::remove_file(s.native("a/more")).unwrap();
            assert!(right(expected - 1));
        });
    }

    /// A number that the backing gives to a new file brings nothing of the old one along.
    fn recycled_numbers_do_not_mix_content() {
        View::of(&["a"]).within("recycled", |s| {
            let (mut before, mut recycled) = (0, 0);
            for (round, maker) in [s.native("a"), s.view("a"), s.native("a")].into_iter().enumerate() {
                for n in 0..150 {
                    step(format!("round {round}, file {n}"));
                    // Of one length, so that the size tells nothing.
                    let (name, content) = (format!("f{round}-{n}"), format!("content of {round} and {n:04}\n").repeat(200));
                    fs::write(maker.join(&name), &content).unwrap();
                    let ino = fs::metadata(s.native("a").join(&name)).unwrap().ino();
                    recycled += u32::from(ino == before);
                    before = ino;
                    let mut file = File::open(s.view("a").join(&name)).unwrap();
                    let mut read = String::new();
                    file.read_to_string(&mut read).unwrap();
                    assert!(read == content, "round {round}, file {n}: the content of another file");
                    assert_eq!(fs::read_to_string(s.native("a").join(&name)).unwrap(), content);
                    if n % 10 == 0 {
                        // Left open while its name goes: its number is its own.
                        fs::remove_file(maker.join(&name)).unwrap();
                        fs::write(maker.join("next"), "next").unwrap();
                        assert_ne!(fs::metadata(s.native("a/next")).unwrap().ino(), ino);
                        assert_eq!(file.metadata().unwrap().len(), content.len() as u64);
                        fs::remove_file(maker.join("next")).unwrap();
                    } else {
                        drop(file);
                        fs::remove_file(maker.join(&name)).unwrap();
                    }
                }
            }
            assert!(recycled > 30, "the backing recycled {recycled} numbers: the test shows nothing");
        });
    }

    /// Changes of the backing, with the view's program none the wiser.
    fn what_is_open_outlives_changes_beside_the_view() {
        let trees = Trees::new(&["a"]);
        let view = trees.mount(&["a"], &[]);
        let back = view.site.native("a");
        for change in ["rm f", "mv f g", "mv d/f d/g", "echo new > n; mv n f", "mkdir -p e; mv f e", "chmod 000 d", "mv d c"] {
            let program = format!(
                r#"
import subprocess
os.makedirs('d', exist_ok=True)
name = 'd/f' if ' d' in {change:?} else 'f'
fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
inside = os.open('d', os.O_RDONLY | os.O_DIRECTORY)
os.write(fd, b'text')
subprocess.run({change:?}, shell=True, check=True, cwd={:?})
os.fchmod(fd, 0o600)
os.setxattr(fd, 'user.x', b'1')
os.ftruncate(fd, 2)
print(os.pread(fd, 9, 0), oct(os.fstat(fd).st_mode & 0o777), os.getxattr(fd, 'user.x'), os.fsync(fd))
os.fchmod(inside, 0o755)
os.close(os.open('made', os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=inside))
print(sorted(os.listdir(inside)))
"#,
                back.to_str().unwrap()
            );
            common::py(&view.site.view("a"), &program).ok();
            common::sh(&back, "chmod -R u+rwx .; rm -rf -- *").ok();
            // The kernel may know the names for a second.
            let site = view.site.clone();
            assert!(common::eventually(common::STEP, move || !site.view("a/d").exists() && !site.view("a/f").exists()));
        }
    }

    /// What is open goes on when its name does not, also after the kernel has dropped its caches.
    fn open_files_outlive_their_names() {
        View::of(&["a"]).within("open files", |s| {
            s.both("unlinked, and renamed over", |d| {
                let open = |name: &str| File::options().read(true).write(true).create(true).truncate(true).open(d.join(name)).unwrap();
                let mut files: Vec<_> = (0..20).map(|n| (n, open(&format!("f{n}")))).collect();
                for (n, file) in &mut files {
                    write!(file, "before {n}").unwrap();
                    match *n % 2 {
                        0 => fs::remove_file(d.join(format!("f{n}"))).unwrap(),
                        _ => {
                            fs::write(d.join("other"), "other").unwrap();
                            fs::rename(d.join("other"), d.join(format!("f{n}"))).unwrap();
                        }
                    }
                }
                drop_caches();
                let check = |(n, mut file): (i32, File)| {
                    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
                    write!(file, " and after").unwrap();
                    let size = file.metadata().unwrap().len();
                    (n, size, file.metadata().unwrap().nlink(), errno_of(file.set_len(9)), fs::read_to_string(path).unwrap())
                };
                let seen: Vec<_> = files.into_iter().map(check).collect();
                (seen, fs::read_to_string(d.join("f1")).unwrap(), fs::read_dir(d).unwrap().count())
            });
        });
    }
}

/// What needs file systems that only root can mount.
mod only_root {
    use super::*;

    #[test]
    fn equal_numbers_of_two_file_systems() {
        common::as_root(|| {
            let [one, two] = [(); 2].map(|()| Mounted::tmpfs("size=4m"));
            for mounted in [&one, &two] {
                plant(&mounted.path());
            }
            assert_eq!(
                numbers(&one.path()),
                numbers(&two.path()),
                "fresh file systems give other numbers: the test shows nothing"
            );
            let mut trees = Trees::new(&[]);
            let out = trees.file("out");
            trees.site.back = one.path();
            let view = trees.mount(&[&one.arg(), &two.arg()], &[]);
            view.within("two file systems", move |s| {
                let roots: Vec<_> = fs::read_dir(&s.mount).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                assert_eq!(roots.len(), 2);
                let [first, second] = [0, 1].map(|n| numbers(&s.mount.join(&roots[n])).into_values().map(|(ino, _)| ino).collect::<BTreeSet<_>>());
                assert!(first.is_disjoint(&second), "equal numbers in two roots");
                step("tar");
                let listed = sh(&s.mount, "tar -cf - . | tar -tvf - | grep -c 'link to'").out;
                assert_eq!(listed.trim(), "42", "each root has 20 files and a link of two names");
                let crossed = "tar -cf - * | tar -tvf - | sed -n 's/.* \\([^ /]*\\)\\/[^ ]* link to \\([^/]*\\).*/\\1 \\2/p' | awk '$1 != $2'";
                assert_eq!(sh(&s.mount, crossed).ok(), "", "tar links files of two roots");
                step("rsync -H");
                fs::create_dir(&out).unwrap();
                sh(&s.mount, &format!("rsync -aH ./ {0}/ && diff -r --no-dereference . {0}", out.display())).ok();
                let links = numbers(&out);
                assert!(links.iter().filter(|(path, _)| path.contains("/h")).all(|(_, (_, nlink))| *nlink == 2), "{links:?}");
                step("du");
                let size = |dir: &Path| sh(dir, "du -sb . | cut -f1").ok().trim().parse::<u64>().unwrap();
                let apart: u64 = roots.iter().map(|root| size(&s.mount.join(root))).sum();
                assert!(size(&s.mount) >= apart, "du counts a file of one root as a link of the other's");
            });
        });
    }

    /// Another file system below a root has its own numbers too.
    #[test]
    fn a_file_system_below_a_root() {
        common::as_root(|| {
            let outer = Mounted::tmpfs("size=4m");
            plant(&outer.path());
            let inner = outer.path().join("inner");
            fs::create_dir(&inner).unwrap();
            common::run(5, std::process::Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&inner)).ok();
            plant(&inner);
            let view = Trees::new(&[]).mount(&[&outer.arg()], &["--cross-mounts"]);
            view.within("a mount below", |s| {
                let all = numbers(&s.view("a"));
                let part = |inside: bool| {
                    all.iter()
                        .filter(|(path, _)| path.starts_with("inner/") == inside)
                        .map(|(_, (ino, _))| *ino)
                        .collect::<BTreeSet<_>>()
                };
                assert!(part(true).len() >= 25 && part(true).is_disjoint(&part(false)), "equal numbers: {all:?}");
                drop_caches();
                assert_eq!(numbers(&s.view("a")), all, "a number changed");
                assert_eq!(all["inner/h1"], all["inner/d1/f1"]);
            });
            drop(view);
            common::unmount(&inner);
        });
    }
}
