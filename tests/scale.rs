//! More files than descriptors, more than memory would like, more than one listing holds.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{Trees, View, eventually, python, run, step};

/// Runs a Python program with the directory as its argument; more time than one step usually has.
#[track_caller]
fn long(seconds: u32, dir: &Path, program: &str) -> String {
    step(format!("python in {}", dir.display()));
    let program = format!("import os, sys\nos.chdir(sys.argv[1])\n{program}");
    run(seconds, Command::new(python()).args(["-c", &program]).arg(dir)).ok()
}

/// `directories` × `each` files, each with its own name as content if `content`.
fn fill(root: &Path, directories: u32, each: u32, content: bool) {
    let program = format!(
        "for d in range({directories}):
    name = f'd{{d:04}}'; os.mkdir(name); dir = os.open(name, os.O_RDONLY)
    for f in range({each}):
        file = os.open(f'file-{{f:04}}.txt', os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644, dir_fd=dir)
        if {}: os.write(file, f'{{d}}/{{f}}'.encode())
        os.close(file)
    os.close(dir)",
        if content { "True" } else { "False" }
    );
    long(200, root, &program);
}

/// A figure of `/proc/PID/status`, in bytes.
fn memory(view: &View) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", view.pid().as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn descriptors(view: &View) -> usize {
    fs::read_dir(format!("/proc/{}/fd", view.pid().as_raw_nonzero())).unwrap().count()
}

fn inodes(view: &View) -> u64 {
    view.status()["roots"][0]["inodes"].as_u64().unwrap()
}

as_root_and_user! {
    /// A hundred files stay open while all are listed and read, by a view that may have 256 descriptors.
    /// A name that goes while another stays costs no descriptor, whichever of the two it is.
    fn names_come_and_go_with_few_descriptors() {
        let view = Trees::new(&["a"]).mount_with_descriptors(256, &["a"], &[]);
        long(60, &view.site.view("a"), "
for n in range(800):
    with open(f't{n}', 'w') as file: file.write(str(n))
    os.link(f't{n}', f'f{n}')
    os.unlink(f't{n}' if n % 2 else f'f{n}')
for n in range(800):
    with open(f't{n}' if n % 2 == 0 else f'f{n}') as file: assert file.read() == str(n)
assert len(os.listdir('.')) == 800
");
    }

    fn a_walk_with_few_descriptors() {
        let trees = Trees::new(&["a"]);
        fill(&trees.site.native("a"), 50, 100, true);
        let view = trees.mount_with_descriptors(256, &["a"], &[]);
        long(60, &view.site.view("a"), "
held = [(f'{d}/{f}', open(f'd{d:04}/file-{f:04}.txt')) for d in range(50) for f in (0, 99)]
for turn in range(2):
    seen = 0
    for d in range(50):
        names = os.listdir(f'd{d:04}')
        assert len(names) == len(set(names)) == 100, (d, len(names))
        for name in names:
            with open(f'd{d:04}/{name}') as file:
                assert file.read() == f'{d}/{int(name[5:9])}', (d, name)
            seen += 1
    assert seen == 5000
    for content, file in held:
        file.seek(0)
        assert file.read() == content
        assert os.fstat(file.fileno()).st_nlink == 1");
        assert!(descriptors(&view) <= 256);
    }

    /// Open files are not bound by the descriptors of the serving process: they are read, written, appended to, renamed,
    /// removed, made read-only and listed as if each had one.
    fn more_open_files_than_descriptors() {
        let trees = Trees::new(&["a"]);
        fs::create_dir(trees.site.native("a/listed")).unwrap();
        for name in 0..500 {
            fs::write(trees.site.native(&format!("a/listed/{name}")), "").unwrap();
        }
        let view = trees.mount_with_descriptors(512, &["a"], &[]);
        long(60, &view.site.view("a"), "
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
files = [os.open(f'f{n}', os.O_CREAT | os.O_EXCL | os.O_RDWR | (os.O_APPEND if n % 2 else 0), 0o644) for n in range(2000)]
streams = [os.scandir('listed') for n in range(40)]
first = [next(stream).name for stream in streams]
for n, file in enumerate(files): os.write(file, f'{n};'.encode())
for n in range(0, 2000, 5): os.rename(f'f{n}', f'moved{n}')
for n in range(1, 2000, 25): os.unlink(f'f{n}')
for n in range(2, 2000, 25): os.rename(f'moved{n - 2}', f'f{n}')
for n in range(3, 2000, 25): os.chmod(f'f{n}', 0o400)
for n, file in enumerate(files): os.write(file, b'more')
for n, file in enumerate(files):
    assert os.pread(file, 100, 0) == f'{n};more'.encode(), n
    assert os.fstat(file).st_nlink == (0 if n % 25 in (1, 2) else 1), n
os.ftruncate(files[1], 3)
assert os.pread(files[1], 100, 0) == b'1;m'
for name, stream in zip(first, streams):
    assert len({name} | {entry.name for entry in stream}) == 500
for file in files: os.close(file)
assert open('f2').read() == '0;more' and open('f4').read() == '4;more'");
        assert!(descriptors(&view) <= 512);
        assert!(eventually(Duration::from_secs(5), || view.status()["roots"][0]["handles"] == 0), "{}", view.status());
    }

    /// One pass lists every name once, also while names go; then the directory empties.
    fn a_directory_of_a_hundred_thousand() {
        let view = View::of(&["a"]);
        long(60, &view.site.native("a"), "
os.mkdir('d'); dir = os.open('d', os.O_RDONLY)
for n in range(100_000): os.mknod(f'entry-{n}', 0o100644, dir_fd=dir)");
        long(90, &view.site.view("a"), "
names = os.listdir('d')
assert len(names) == len(set(names)) == 100_000, len(names)
gone = 0
for entry in os.scandir('d'):
    if entry.name.endswith('7'): os.unlink('d/' + entry.name); gone += 1
assert gone == 10_000, gone
assert len(os.listdir('d')) == 90_000");
        step("rm -r");
        run(90, Command::new("rm").arg("-r").arg(view.site.view("a/d"))).ok();
        assert!(!view.site.native("a/d").exists());
    }
}

/// How many files [`only_root::memory_per_inode`] walks, in thousands.
fn thousands() -> u32 {
    std::env::var("ROOTSFS_TEST_THOUSANDS").ok().and_then(|text| text.parse().ok()).unwrap_or(150)
}

mod only_root {
    use super::*;

    /// A big tree is walked under the usual limits; each inode costs little, and what it cost comes back.
    #[test]
    fn memory_per_inode() {
        common::as_root(|| {
            let view = View::of(&["a"]);
            fill(&view.site.native("a"), thousands(), 1000, false);
            let before = memory(&view);
            step("find");
            let mut find = Command::new("sh");
            find.args(["-c", "find \"$0\" -type f -size 0 | wc -l"]).arg(view.site.view("a"));
            assert_eq!(run(500, &find).ok().trim(), (thousands() * 1000).to_string());
            let (known, after) = (inodes(&view), memory(&view));
            let each = after.saturating_sub(before) / known;
            println!("{known} inodes known, {each} bytes each, {} descriptors", descriptors(&view));
            assert!(known >= u64::from(thousands()) * 1000, "the kernel has forgotten some already");
            assert!(each < 300, "{each} bytes an inode");
            let forgotten = eventually(Duration::from_secs(60), || {
                // Dentries and inodes, which the kernel then forgets (proc_sys_vm(5), drop_caches).
                fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
                inodes(&view) < 100
            });
            assert!(forgotten, "{} inodes are still known", inodes(&view));
            let bound = before + (after - before) / 4;
            let small = eventually(Duration::from_secs(10), || memory(&view) < bound);
            println!("{} bytes before, {after} with all known, {} after the kernel forgot", before, memory(&view));
            assert!(small, "{before} bytes before, {after} with all known, {} after", memory(&view));
            assert!(descriptors(&view) < 64, "{} descriptors", descriptors(&view));
        });
    }
}
