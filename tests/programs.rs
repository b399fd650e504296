//! Real programs on whole trees: version control, builds, copies, archives, editors. What they print and leave behind is
//! compared with what they do in a plain directory.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;

use common::{Site, Trees, View, at_work, sh, step, work};
use rustix::fs::inotify;

/// Runs a script in the view and in the plain directory; both must print the same.
#[track_caller]
fn both(s: &Site, script: &str) -> String {
    let plain = work(&s.twin, script);
    assert_eq!(work(&s.view("a"), script), plain, "{script}: the view (left) differs from the plain directory (right)");
    plain
}

/// A tree with everything a copy can lose; `owner` is root's part.
const RICH: &str = r#"
umask 022
mkdir -p tree/sub/empty tree/setgid
printf one >tree/one; ln tree/one tree/sub/hard; ln -s one tree/link; ln -s nowhere tree/dangling
mkfifo tree/fifo
truncate -s 1M tree/sparse; printf x | dd of=tree/sparse bs=1 seek=500000 conv=notrunc status=none
chmod 2775 tree/setgid; chmod 1777 tree/sub/empty; chmod 0400 tree/sub/hard
printf acl >tree/acl; setfacl -m u:1:rw,g:2:r,m::rw tree/acl; setfacl -d -m u:3:rwx tree/setgid
setfattr -n user.colour -v blue tree/acl; setfattr -n user.shape -v 0x00ff01 tree/sub
[ "$(id -u)" != 0 ] || { printf o >tree/owned; chown 12:34 tree/owned; chown -h 7:8 tree/dangling; }
find tree -exec touch -h -d '1999-12-31 23:59:59.123456789' {} +; touch -h -d '2001-02-03 04:05:06.789' tree/link
"#;
/// Everything there is to see of the tree in the current directory.
const SEE: &str = "find . -printf '%P %y %m %n %s %l %U %G %T@\n' | sed 's/ d \\([0-9]* [0-9]*\\) [0-9]* / d \\1 /' | sort; \
                   getfacl -nRP . | grep -v '^$'; getfattr -dhR -m - . 2>/dev/null; find . -type f -readable -exec sha256sum {} + | sort -k2";

as_root_and_user! {
    fn git_with_ten_thousand_files() {
        at_work(&View::of(&["a"]), "git", |s| {
            let here = s.view("a");
            let git = |script: &str| work(&here, &format!("cd repo\n{script}"));
            // By itself git would collect in the background, while the next command runs.
            work(&here, "git init -q -b main repo && git -C repo config gc.auto 0 && mkdir repo/many && seq 10000 | split -l 1 -a 4 -d - repo/many/f");
            git("git add .");
            git("git commit -qm one");
            assert_eq!(git("git status --porcelain; git ls-files | wc -l"), "10000\n");
            git("seq 20000 2 20998 | split -l 1 -a 4 -d - many/f && git commit -qam two");
            assert_eq!(git("git diff --shortstat HEAD~1"), " 500 files changed, 500 insertions(+), 500 deletions(-)\n");
            git("git gc -q && git fsck --strict --no-progress");
            assert_eq!(
                git("git count-objects -v | grep -E '^(count|packs|garbage)'"),
                "count: 0\npacks: 1\ngarbage: 0\n"
            );
            work(&here, "git clone -q repo clone && diff -r repo/many clone/many");
            // For those who look at the backing it is a clean repository, too.
            for dir in [&here, &s.native("a")] {
                for repository in ["repo", "clone"] {
                    let status = work(&dir.join(repository), "git status --porcelain");
                    assert_eq!(status, "", "{repository} in {}", dir.display());
                }
            }
            work(&s.native("a"), "git -C repo fsck --strict --no-progress; git -C clone fsck --strict --no-progress");
        });
    }

    fn git_history() {
        at_work(&View::of(&["a"]), "git", |s| {
            both(&s, "git init -q -b main . && for i in $(seq 16); do echo $i >n; git add n; git commit -qm $i; done");
            let found = both(&s, "git bisect start HEAD HEAD~15 >/dev/null\n\
                git bisect run sh -c 'test $(cat n) -lt 11' >log 2>&1; grep -c 'is the first bad commit' log\n\
                git log -1 --format=%s refs/bisect/bad; git bisect reset 2>/dev/null; git status --porcelain");
            assert_eq!(found, "1\n11\n?? log\n");
            step("switching appends to .git/logs/HEAD");
            let lines = both(&s, "git switch -qc other HEAD~3; for i in 1 2 3 4 5; do git switch -q main; git switch -q other; done\n\
                wc -l <.git/logs/HEAD; git reflog | wc -l; ls .git/*.lock 2>/dev/null || true");
            assert!(lines.lines().all(|line| line.parse::<u32>().unwrap() > 25), "{lines}");
            step("rebase, stash, reset");
            both(&s, "git switch -q other; echo x >x; git add x; git commit -qm x; git rebase -q main 2>&1; git log --format=%s | head -3\n\
                echo dirty >n; git stash -q; cat n; git stash pop -q; cat n; git reset -q --hard; git clean -fdxq; git status --porcelain");
            step("a worktree in the same root");
            both(
                &s,
                "git worktree add -q wt -b side && cd wt && echo side >side && git add side && git commit -qm side && git status --porcelain\n\
                cat .git | sed 's|: .*/[.]git/|: .git/|'; cd ..; git merge -q --no-edit side; git log --format=%s | head -1\n\
                git worktree move wt wt2; git -C wt2 status --porcelain; git worktree remove wt2; git worktree prune; test ! -e wt2; git worktree list | wc -l",
            );
            work(&s.native("a"), "test -z \"$(git status --porcelain)\"; git fsck --strict --no-progress");
        });
    }

    fn git_submodule() {
        let trees = Trees::new(&["a", "b"]);
        let view = trees.mount(&["a", "b"], &[]);
        at_work(&view, "a superproject and its module in one root", |s| {
            let made = both(&s, "git init -q -b main lib && (cd lib && echo lib >lib.c && git add . && git commit -qm lib)\n\
                git init -q -b main super && cd super && git -c protocol.file.allow=always submodule --quiet add ../lib mod\n\
                git commit -qm super && cat mod/.git && git submodule status --recursive | cut -d' ' -f3-\n\
                cd mod && echo more >>lib.c && git commit -qam more && cd .. && git commit -qam bump && git status --porcelain");
            assert_eq!(made, "gitdir: ../.git/modules/mod\nmod (heads/main)\n");
            work(&s.native("a/super"), "test -z \"$(git status --porcelain)\" && git -C mod log --format=%s");
            step("a git directory in another root");
            work(&s.mount, "git init -q -b main --separate-git-dir b/git a/apart && cd a/apart && echo f >f && git add f && git commit -qm f");
        });
        view.roots("remove", &["b"]).ok();
        view.within("the other root is gone", |s| {
            let ran = sh(&s.view("a/apart"), "LC_ALL=C git status");
            assert!(ran.code == 128 && ran.err.contains("not a git repository"), "{ran:#?}");
            assert!(s.native("b/git/HEAD").exists());
        });
        let said = view.rootsfs(&["log", view.m(), "--denied"]).ok();
        assert!(said.contains("lookup b: root-revoked ENOENT"), "{said}");
    }

    fn make_twice() {
        at_work(&View::of(&["a"]), "make", |s| {
            let source = "printf 'int one(void){return 1;}' >one.c; printf 'int one(void); int main(void){return one()-1;}' >main.c\n\
                printf 'main: main.o one.o\\n\\t$(CC) -o $@ $^\\n' >Makefile";
            both(&s, source);
            assert_eq!(both(&s, "make -s CC=gcc && ./main && make CC=gcc"), "make: 'main' is up to date.\n");
            let again = both(&s, "sleep 0.02; touch one.c && make CC=gcc && ./main; make -s CC=gcc -q; echo $?");
            assert!(again.contains("one.c") && !again.contains("main.c") && again.ends_with("0\n"), "{again}");
            both(&s, "make -s -j4 -B CC=gcc && ./main");
        });
    }

    fn rsync_both_ways() {
        at_work(&View::of(&["a"]), "rsync", |s| {
            work(&s.twin, RICH);
            let (plain, view, backing) = (s.twin.join("tree"), s.view("a/tree"), s.native("a/tree"));
            let copy = |from: &Path, to: &Path| {
                step(format!("{} to {}", from.display(), to.display()));
                let (from, to) = (from.display(), to.display());
                work(&s.twin, &format!("rsync -aHAX --delete {from}/ {to}/"));
                assert_eq!(work(&s.twin, &format!("rsync -aHAXn --delete -i {from}/ {to}/")), "");
                assert_eq!(work(&s.twin, &format!("rsync -aHAXnc --delete -i {from}/ {to}/")), "", "by checksum");
            };
            copy(&plain, &view);
            assert_eq!(work(&view, SEE), work(&plain, SEE), "view (left), plain (right)");
            assert_eq!(work(&backing, SEE), work(&plain, SEE), "backing (left), plain (right)");
            let back = s.twin.join("back");
            copy(&view, &back);
            assert_eq!(work(&back, SEE), work(&plain, SEE), "fetched (left), plain (right)");
            step("an update: a change, a removal, a type changed");
            work(&plain, "echo more >>sub/new; rm link; mkdir link; mv acl renamed; rm sparse");
            copy(&plain, &view);
        });
    }

    fn rsync_eight_at_once() {
        let view = Trees::new(&["a"]).mount(&["a"], if rustix::process::geteuid().is_root() { &["--allow-other"] } else { &[] });
        at_work(&view, "rsync", |s| {
            let dirs = "for d in 1 2 3 4 5 6 7 8; do mkdir $d; (cd $d; seq 500 | split -l 1 -a 4 -d - f); done";
            work(&s.twin, dirs);
            // Root's half: every other one as somebody else, so that threads of the daemon change identity all the time.
            let script = format!(
                "mkdir to; i=0; for d in 1 2 3 4 5 6 7 8; do mkdir to/$d; as=\n\
                 if [ \"$(id -u)\" = 0 ] && [ $((d % 2)) = 0 ]; then chown 65534:65534 to/$d; as='setpriv --reuid 65534 --regid 65534 --clear-groups'; fi\n\
                 (rsync -rt {}/$d/ to/$d/ 2>&1 || echo failed) >log.$d & done; wait; cat log.*; diff -r {} to >/dev/null && find to -type f | wc -l",
                s.twin.display(), s.twin.display(),
            ).replace("(rsync", "($as rsync");
            assert_eq!(work(&s.view("a"), &script), "4000\n");
            if rustix::process::geteuid().is_root() {
                assert_eq!(work(&s.native("a"), "find to -type f -uid 65534 -gid 65534 | wc -l"), "2000\n");
            }
        });
    }

    fn tar_with_acls_and_attributes() {
        at_work(&View::of(&["a"]), "tar", |s| {
            both(&s, &format!("{RICH} cd tree; {SEE}"));
            let pack = "tar --xattrs --acls --numeric-owner -S -cpf t.tar tree && rm -rf un && mkdir un && tar --xattrs --acls --numeric-owner -xpf t.tar -C un\n";
            both(&s, &format!("{pack} tar --acls -df t.tar; cd un/tree; {SEE}"));
            step("cp -a keeps the same, and mode and ACL are both right");
            both(&s, &format!("cp -a tree copy; cd copy; {SEE}; getfacl -nc acl; stat -c %a acl"));
            step("an archive made in the view, unpacked beside it");
            let archive = s.view("a/t.tar");
            work(&s.twin, &format!("mkdir from-view; tar --xattrs --acls --numeric-owner -xpf {} -C from-view", archive.display()));
            assert_eq!(work(&s.twin.join("from-view/tree"), SEE), work(&s.twin.join("un/tree"), SEE));
        });
    }

    fn acls_are_enforced() {
        at_work(&View::of(&["a"]), "ACLs", |s| {
            // The mask is the group's part of the mode, and a default ACL stands in for the umask.
            both(&s, "umask 077; echo x >f; setfacl -m u:1:rw f; stat -c %a f; chmod 640 f; getfacl -nc f; setfacl -b f; getfacl -nc f; stat -c %a f");
            both(&s, "umask 077; mkdir d; setfacl -d -m u::rwx,g::rx,o::rx,u:1:rwx d; mkdir d/sub; : >d/f; getfacl -nc d d/sub d/f; stat -c %a d/sub d/f");
            both(&s, "setfacl -m u:$(id -u):--- f; getfacl -nc f; setfacl -x u:$(id -u) f; setfacl -k d; getfacl -nc d; getfattr -m - -d f d");
        });
    }

    fn dpkg_deb() {
        at_work(&View::of(&["a"]), "dpkg-deb", |s| {
            let made = both(&s, "umask 022; mkdir -p pkg/DEBIAN pkg/usr/bin pkg/usr/share/hello\n\
                printf 'Package: hello\\nVersion: 1\\nArchitecture: all\\nMaintainer: t <t@example.org>\\nDescription: hello\\n' >pkg/DEBIAN/control\n\
                printf '#!/bin/sh\\necho hello\\n' >pkg/usr/bin/hello; chmod 755 pkg/usr/bin/hello; ln -s ../share/hello pkg/usr/bin/data\n\
                seq 50000 >pkg/usr/share/hello/numbers; find pkg -exec touch -h -d @1000000000 {} +\n\
                SOURCE_DATE_EPOCH=1000000000 dpkg-deb --root-owner-group -b pkg hello.deb; dpkg-deb -I hello.deb | grep -v bytes; dpkg-deb -c hello.deb\n\
                sha256sum hello.deb; dpkg-deb -R hello.deb un; diff -r pkg un; un/usr/bin/hello; readlink un/usr/bin/data");
            assert!(made.ends_with("hello\n../share/hello\n"), "{made}");
        });
    }

    fn editors_save() {
        View::of(&["a"]).within("editors", |s| {
            both(&s, "umask 022; printf 'one\\n' >f; chmod 640 f; ln f hard");
            // vim writes a new file and renames, or keeps the old one and copies: links and modes show which.
            for (how, links) in [("no", "1"), ("yes", "2")] {
                step(format!("vim with backupcopy={how}"));
                let vim = format!("rm -f hard; ln f hard; vim.tiny -N -u NONE -i NONE -es -c 'set backupskip= backupcopy={how} backup writebackup backupext=.bak backupdir=. noswapfile' -c '%s/$/x/' -c wq f </dev/null\n\
                    cat f f.bak; stat -c '%a %h' f; ls -A");
                assert!(both(&s, &vim).contains(&format!("640 {links}\n")), "backupcopy={how}");
            }
            step("vim with a swap file, and a recovery from it");
            both(&s, "vim.tiny -N -u NONE -i NONE -es -c 'set directory=.' -c 'normal ggOswapped' -c preserve -c 'qa!' f </dev/null; ls -A; cat f");
            step("sed -i");
            both(&s, "sed -i s/one/two/ f; stat -c '%a %h' f; cat f; sed -i.orig s/two/three/ f; cat f f.orig; ls -A");
        });
        View::of(&["a"]).within("VS Code: truncate and write, or an atomic save", |s| {
            s.both("a save in place", |d| {
                fs::write(d.join("f"), "a longer text").unwrap();
                let before = fs::metadata(d.join("f")).unwrap();
                fs::write(d.join("f"), "short").unwrap();
                let after = fs::metadata(d.join("f")).unwrap();
                use std::os::unix::fs::MetadataExt;
                (before.ino() == after.ino(), after.len(), fs::read(d.join("f")).unwrap())
            });
            s.both("an atomic save under a reader", |d| {
                let mut old = fs::File::open(d.join("f")).unwrap();
                for n in 0..50 {
                    fs::write(d.join(".f.tmp"), format!("save {n}")).unwrap();
                    fs::rename(d.join(".f.tmp"), d.join("f")).unwrap();
                    assert_eq!(fs::read_to_string(d.join("f")).unwrap(), format!("save {n}"));
                }
                let mut text = String::new();
                std::io::Read::read_to_string(&mut old, &mut text).unwrap();
                text
            });
        });
    }

    fn watchers_of_the_view() {
        View::of(&["a"]).within("inotify", |s| {
            s.both("events of changes made through the same path", |d| {
                fs::create_dir(d.join("w")).unwrap();
                let watcher = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
                let asked = inotify::WatchFlags::ONLYDIR | inotify::WatchFlags::DONT_FOLLOW;
                let kinds = inotify::WatchFlags::ALL_EVENTS - inotify::WatchFlags::ACCESS - inotify::WatchFlags::OPEN;
                inotify::add_watch(&watcher, d.join("w"), kinds | asked).unwrap();
                sh(d, "cd w; echo one >f; echo two >>f; mv f g; chmod 600 g; mkdir d; ln g h; ln -s g l; truncate -s 1 g; touch -d @1 h; rm h; rmdir d; cat g >/dev/null; cd ..; mv w/g .; mv g w; rm -r w").ok();
                let mut space = [MaybeUninit::uninit(); 1 << 16];
                let mut events = inotify::Reader::new(&watcher, &mut space);
                let mut seen = Vec::new();
                while let Ok(event) = events.next() {
                    seen.push(format!("{:?} {:?}", event.file_name(), event.events()));
                }
                assert!(seen.len() > 15, "{seen:#?}");
                seen
            });
        });
    }

    fn scripts_run_the_moment_they_are_written() {
        at_work(&View::of(&["a"]), "write, chmod, close, run", |s| {
            // Processes, not threads: a thread that forks holds the other threads' descriptors for a moment, and the kernel
            // then says ETXTBSY in any directory.
            let script = "for w in 1 2 3 4 5 6 7 8; do (i=0; end=$(($(date +%s) + 5)); while [ $i -lt 1250 ] && [ $((i % 50)) != 0 -o $(date +%s) -lt $end ]; do\n\
                printf '#!/bin/sh\\n:\\n' >t$w-$i; chmod 755 t$w-$i; ./t$w-$i || echo \"failed $w-$i\"; i=$((i+1)); done; echo $i >done.$w) 2>&1 & done\n\
                wait; awk '{n += $1} END {print n}' done.*";
            let ran = work(&s.view("a"), script);
            assert!(ran.trim().parse::<u32>().is_ok_and(|runs| runs > 500), "{ran}");
            step("and from the backing, as soon as close(2) of the view has returned");
            let beside = format!("for i in $(seq 300); do printf '#!/bin/sh\\n:\\n' >b$i; chmod 755 b$i; {}/b$i; done", s.native("a").display());
            work(&s.view("a"), &beside);
        });
    }
}
