//! The tools of a working day, through the view.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::path::Path;

use common::{Trees, View, step, work};

as_root_and_user! {
    fn search() {
        let trees = Trees::new(&["a", "b"]);
        for n in 0..300 {
            let dir = trees.site.native(if n % 2 == 0 { "a" } else { "b" }).join(format!("d{}", n % 10));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(format!("f{n}")), format!("line\nneedle {n}\n")).unwrap();
        }
        trees.mount(&["a", "b"], &[]).within("search", |s| {
            let count = |dir: &Path, script: &str| work(dir, script).trim().parse::<u32>().unwrap();
            assert_eq!(count(&s.mount, "rg --no-config -uu needle | wc -l"), 300);
            assert_eq!(count(&s.mount, "grep -r needle . | wc -l"), 300);
            assert_eq!(count(&s.mount, "find . -type f | wc -l"), 300);
            work(&s.mount, &format!("diff -r a {}", s.native("a").display()));
            let usage = "du -s --apparent-size . | cut -f1";
            assert_eq!(count(&s.view("a"), usage), count(&s.native("a"), usage));
        });
    }

    fn git() {
        let view = View::of(&["a"]);
        view.within("git", |s| {
            work(&s.view("a"), "git init -q -b main . && mkdir src && for i in $(seq 60); do echo $i >src/$i; done && git add . && git commit -qm one");
            assert_eq!(work(&s.view("a"), "git status --porcelain"), "");
            work(&s.view("a"), "echo more >>src/7 && git rm -q src/8 && git mv src/9 nine && git commit -qam two");
            assert_eq!(work(&s.view("a"), "git log --format=%s"), "two\none\n");
            work(&s.view("a"), "git checkout -qb side HEAD~1 && echo side >side && git add side && git commit -qm side && git merge -q --no-edit main");
            work(&s.view("a"), "git gc -q && git fsck --strict && git stash list && git worktree list && git clone -q . clone && git -C clone log --oneline -1");
            assert_eq!(work(&s.view("a"), "git rev-parse --show-toplevel").trim(), s.view("a").to_str().unwrap());
            // What the view made is a repository for everybody else.
            assert_eq!(work(&s.native("a"), "git status --porcelain --untracked-files=no; git log --format=%s -1"), "Merge branch 'main' into side\n");
        });
    }

    fn cargo() {
        let view = View::of(&["a"]);
        view.within("cargo", |s| {
            work(&s.view("a"), "cargo init -q --vcs none --name small .");
            fs::write(s.view("a/build.rs"), "fn main() { println!(\"cargo::rustc-env=BUILT=yes\"); }").unwrap();
            fs::write(s.view("a/src/main.rs"), "fn main() { println!(\"built: {}\", env!(\"BUILT\")); }").unwrap();
            assert_eq!(work(&s.view("a"), "cargo run -q --offline"), "built: yes\n");
            let again = work(&s.view("a"), "cargo build --offline 2>&1");
            assert!(!again.contains("Compiling"), "nothing changed, yet cargo built again: {again}");
            step("an incremental build after a change");
            fs::write(s.view("a/src/main.rs"), "fn main() { println!(\"again: {}\", env!(\"BUILT\")); }").unwrap();
            assert_eq!(work(&s.view("a"), "cargo run -q --offline"), "again: yes\n");
        });
    }

    fn editors_and_copies() {
        View::of(&["a"]).within("copies", |s| {
            work(&s.view("a"), "mkdir t && for i in $(seq 200); do echo $i >t/$i; done && ln -s t/1 l && ln t/1 t/one");
            work(&s.view("a"), "cp -a t copy && diff -r t copy && tar -cf t.tar t && tar -df t.tar && rm -r copy t.tar");
            work(&s.view("a"), "sed -i s/1/one/ t/1 && grep -q one t/one || grep -q 1 t/one");
            work(&s.view("a"), "i=0; while [ $i -lt 20 ]; do printf '%s' $i >.t~ && mv .t~ saved; i=$((i+1)); done; test $(cat saved) = 19");
            work(&s.view("a"), "make -f /dev/null -n 2>/dev/null || true; touch -d '2001-02-03 04:05:06' t/2 && test $(stat -c %Y t/2) -lt 1000000000");
            work(&s.view("a"), "rm -r t && ls -A");
        });
    }
}
