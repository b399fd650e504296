//! How long a revocation takes, and what the root that stays notices of it.
//!
//! `cargo bench --bench revoke [-- ROUNDS]`, as anybody who may mount. For each number of cached inodes, a root with that
//! many files is walked and read through the view, so that the kernel holds names, attributes and pages; then it leaves the
//! list while another thread reads and stats a file of a root that stays. Times are microseconds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rootsfs::authorize::Policy;
use rootsfs::publisher::{Publisher, PublisherOptions};
use rootsfs::record::Record;
use rootsfs::roots::RootInput;
use rootsfs::view::{View, ViewOptions};

fn main() {
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(30);
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let base = dir.path().canonicalize().unwrap();
    let mountpoint = base.join("view");
    std::fs::create_dir(&mountpoint).unwrap();
    std::fs::create_dir(base.join("stays")).unwrap();
    std::fs::write(base.join("stays/file"), [b'x'; 8192]).unwrap();
    let options = ViewOptions {
        mountpoint: mountpoint.clone(),
        allow_other: false,
        policy: Policy::default(),
        timeout: Duration::from_secs(60),
        hold: Duration::from_secs(1),
        threads: 2,
    };
    let record = Arc::new(Record::default());
    let view = Arc::new(View::mount(&options, Arc::clone(&record)).unwrap());
    let publisher = Publisher::start(Arc::clone(&view) as _, record, PublisherOptions::default());
    println!("cached inodes | open files | revoke p50 | p99 | retained read p50 | p99 | worst");
    println!("--- | --- | --- | --- | --- | --- | ---");
    for (inodes, open) in [(1, 0), (1_000, 0), (1_000, 1_000), (15_000, 0)] {
        populate(&base.join("goes"), inodes);
        let (mut took, mut retained) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            publisher.control_set(vec![root(&base.join("goes")), root(&base.join("stays"))]).unwrap();
            let held = warm(&mountpoint.join("goes"), open);
            let busy = busy_reader(&mountpoint.join("stays/file"));
            let start = Instant::now();
            publisher.control_set(vec![root(&base.join("stays"))]).unwrap();
            took.push(start.elapsed());
            retained.extend(busy.stop());
            for file in &held {
                assert!(file.read_at(&mut [0; 1], 0).is_err(), "a revoked file was read");
            }
        }
        std::fs::remove_dir_all(base.join("goes")).unwrap();
        let (took, retained) = (Spread::of(took), Spread::of(retained));
        println!(
            "{inodes} | {open} | {} | {} | {:.1} | {:.1} | {}",
            took.at(50).as_micros(),
            took.at(99).as_micros(),
            retained.at(50).as_nanos() as f64 / 1e3,
            retained.at(99).as_nanos() as f64 / 1e3,
            retained.at(100).as_micros()
        );
    }
    drop(publisher);
    view.unmount();
}

fn root(path: &Path) -> RootInput {
    RootInput { uri: path.to_str().unwrap().into(), name: None, entry: None, path_allowed: true }
}

fn populate(dir: &Path, files: usize) {
    for index in 0..files {
        let parent = dir.join(format!("d{}", index / 100));
        std::fs::create_dir_all(&parent).unwrap();
        std::fs::write(parent.join(format!("f{index}")), index.to_string()).unwrap();
    }
}

/// Walks and reads everything; keeps the first `open` files open.
fn warm(dir: &Path, open: usize) -> Vec<File> {
    let mut held = Vec::new();
    for parent in std::fs::read_dir(dir).unwrap() {
        for file in std::fs::read_dir(parent.unwrap().path()).unwrap() {
            let file = File::open(file.unwrap().path()).unwrap();
            file.read_at(&mut [0; 16], 0).unwrap();
            if held.len() < open {
                held.push(file);
            }
        }
    }
    held
}

struct Busy {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<Duration>>,
}

impl Busy {
    fn stop(self) -> Vec<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Times a cached read and a stat of a file of the root that stays, until it is stopped.
fn busy_reader(file: &Path) -> Busy {
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, path) = (Arc::clone(&stop), file.to_owned());
    let file = File::open(&path).unwrap();
    file.read_at(&mut [0; 4096], 0).unwrap();
    let thread = std::thread::spawn(move || {
        let mut times = Vec::new();
        while !stopped.load(Ordering::Relaxed) {
            let start = Instant::now();
            file.read_at(&mut [0; 4096], 0).unwrap();
            std::fs::metadata(&path).unwrap();
            times.push(start.elapsed());
        }
        times
    });
    Busy { stop, thread }
}

struct Spread(Vec<Duration>);

impl Spread {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    fn at(&self, percent: usize) -> Duration {
        self.0[(self.0.len() - 1) * percent / 100]
    }
}
