use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use tempfile::TempDir;

use super::*;

/// A view that only remembers.
#[derive(Default)]
struct FakeStage {
    installed: Mutex<Vec<(Arc<Snapshot>, Manner)>>,
    held: Mutex<Vec<Instance>>,
    busy: AtomicBool,
}

impl FakeStage {
    fn last(&self) -> Arc<Snapshot> {
        Arc::clone(&self.installed.lock().last().unwrap().0)
    }

    fn generations(&self) -> Vec<u64> {
        self.installed.lock().iter().map(|(snapshot, _)| snapshot.generation).collect()
    }
}

impl Stage for FakeStage {
    fn install(&self, snapshot: Arc<Snapshot>, manner: Manner) -> Installed {
        assert!(!self.busy.swap(true, Ordering::SeqCst), "two installs at once");
        self.installed.lock().push((snapshot, manner));
        self.busy.store(false, Ordering::SeqCst);
        Installed { handles_revoked: 7, ..Installed::default() }
    }

    fn hold(&self, roots: &[Instance]) {
        *self.held.lock() = roots.to_vec();
    }

    fn show_state(&self, _: ListState) {}

    fn own_mount(&self) -> Option<u64> {
        None
    }
}

struct Bench {
    dir: TempDir,
    stage: Arc<FakeStage>,
    publisher: Publisher,
}

impl Bench {
    fn new(policy: AuthorityPolicy, command_line: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let command_line = command_line.iter().map(|name| input(dir.path().join(name))).collect();
        let stage = Arc::new(FakeStage::default());
        let options = PublisherOptions { policy, command_line, expects_client: true, ..PublisherOptions::default() };
        let publisher = Publisher::start(Arc::clone(&stage) as Arc<dyn Stage>, Arc::default(), options);
        Self { dir, stage, publisher }
    }

    fn list(&self, names: &[&str]) -> Vec<RootInput> {
        names.iter().map(|name| input(self.dir.path().join(name))).collect()
    }

    fn client(&self, names: &[&str]) -> Published {
        self.publisher.set_client(self.list(names), Trigger::ListChanged).unwrap()
    }

    #[track_caller]
    fn expect(&self, state: ListState, authority: Authority, entries: &[&str]) {
        let status = self.publisher.status();
        assert_eq!((status.state, status.authority), (state, authority));
        assert_eq!(shown(&status.snapshot), entries);
        assert!(Arc::ptr_eq(&status.snapshot, &self.stage.last()));
        assert_eq!(status.why.is_empty(), matches!(state, ListState::Active | ListState::Waiting), "{}", status.why);
    }

    /// Waits at most three seconds for a publication that nobody asked for.
    #[track_caller]
    fn soon(&self, entries: &[&str]) {
        let deadline = Instant::now() + Duration::from_secs(3);
        while shown(&self.publisher.status().snapshot) != entries {
            assert!(Instant::now() < deadline, "{:?}", self.publisher.status());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn input(path: PathBuf) -> RootInput {
    RootInput { uri: path.to_str().unwrap().into(), name: None, entry: None, path_allowed: true }
}

fn shown(snapshot: &Snapshot) -> Vec<String> {
    snapshot.roots.iter().map(|root| root.entry.to_string()).collect()
}

#[test]
fn start_waits_or_shows_the_command_line() {
    let bench = Bench::new(AuthorityPolicy::Client, &[]);
    bench.expect(ListState::Waiting, Authority::CommandLine, &[]);
    bench.publisher.client_unsupported().unwrap();
    bench.expect(ListState::Waiting, Authority::CommandLine, &[]);
    let bench = Bench::new(AuthorityPolicy::Client, &["a"]);
    bench.expect(ListState::Active, Authority::CommandLine, &["a"]);
    assert_eq!(bench.stage.generations(), [1]);
    let published = bench.client(&["b"]);
    assert_eq!(
        (published.generation, published.revoked, published.added, published.retained, published.handles_revoked),
        (2, vec!["a".to_owned()], vec!["b".to_owned()], vec![], 7)
    );
    bench.expect(ListState::Active, Authority::Client, &["b"]);
    bench.publisher.client_gone().unwrap();
    bench.expect(ListState::Active, Authority::CommandLine, &["a"]);
}

#[test]
fn same_list_is_a_new_generation_of_the_same_roots() {
    let bench = Bench::new(AuthorityPolicy::Client, &[]);
    bench.client(&["a"]);
    let before = Arc::clone(&bench.stage.last().roots[0]);
    let again = bench.client(&["a"]);
    assert_eq!((again.generation, again.retained), (3, vec!["a".to_owned()]));
    assert_eq!(bench.publisher.refresh(Duration::from_secs(1)).unwrap().generation, 4);
    assert!(Arc::ptr_eq(&before, &bench.stage.last().roots[0]));
    std::thread::sleep(Duration::from_millis(1300));
    assert_eq!(bench.stage.generations(), [1, 2, 3, 4], "a rescan that finds nothing publishes nothing");
}

#[test]
fn stale_then_unavailable_then_back() {
    let bench = Bench::new(AuthorityPolicy::Client, &["c"]);
    bench.client(&["a"]);
    assert_eq!(bench.publisher.announce().unwrap().generation, 2);
    bench.expect(ListState::Stale, Authority::Client, &["a"]);
    assert_eq!(*bench.stage.held.lock(), [bench.stage.last().roots[0].instance]);
    bench.publisher.unavailable("no answer in 5 s").unwrap();
    bench.expect(ListState::Unavailable, Authority::Client, &[]);
    assert_eq!(bench.publisher.status().why, "no answer in 5 s");
    bench.publisher.announce().unwrap();
    bench.expect(ListState::Unavailable, Authority::Client, &[]);
    bench.client(&["a"]);
    bench.expect(ListState::Active, Authority::Client, &["a"]);
}

#[test]
fn union_loses_only_the_clients_part() {
    let bench = Bench::new(AuthorityPolicy::Union, &["c"]);
    bench.client(&["a", "c"]);
    bench.expect(ListState::Active, Authority::Client, &["a", "c"]);
    bench.publisher.announce().unwrap();
    let last = bench.stage.last();
    let held = last.by_entry(b"a").unwrap().instance;
    assert_eq!(*bench.stage.held.lock(), [held], "the operator's own is nobody else's to take");
    let published = bench.publisher.unavailable("gone").unwrap();
    assert_eq!((published.revoked, published.retained), (vec!["a".to_owned()], vec!["c".to_owned()]));
    bench.expect(ListState::Unavailable, Authority::CommandLine, &["c"]);
}

#[test]
fn command_line_policy_ignores_the_client() {
    let bench = Bench::new(AuthorityPolicy::CommandLine, &["c"]);
    bench.client(&["a"]);
    bench.publisher.announce().unwrap();
    bench.publisher.unavailable("x").unwrap();
    bench.expect(ListState::Active, Authority::CommandLine, &["c"]);
    assert_eq!(bench.stage.generations(), [1]);
}

#[test]
fn control_adds_and_removes_by_any_name() {
    let bench = Bench::new(AuthorityPolicy::Client, &[]);
    std::os::unix::fs::symlink(bench.dir.path().join("b"), bench.dir.path().join("link")).unwrap();
    bench.client(&["a", "link", "b"]);
    bench.publisher.control_add(bench.list(&["c"])).unwrap();
    bench.expect(ListState::Active, Authority::Control, &["a", "c", "link"]);
    let before = bench.stage.generations();
    let unknown = bench.publisher.control_remove(&["a".into(), "nothing".into()], Manner::Now);
    assert_eq!(unknown.unwrap_err(), PublishError::UnknownRoot("nothing".into()));
    assert_eq!(bench.stage.generations(), before);
    let path = bench.dir.path().join("b").to_str().unwrap().to_owned();
    bench.publisher.control_remove(&[path], Manner::Now).unwrap();
    bench.expect(ListState::Active, Authority::Control, &["a", "c"]);
    assert_eq!(bench.stage.installed.lock().last().unwrap().1, Manner::Now);
    let uri = crate::roots::uri::to_uri(&bench.dir.path().join("a"));
    bench.publisher.control_remove(&[uri, "c".into()], Manner::Graceful).unwrap();
    bench.expect(ListState::Active, Authority::Control, &[]);
    bench.publisher.control_set(bench.list(&["gone"])).unwrap();
    let gone = bench.dir.path().join("gone").to_str().unwrap().to_owned();
    bench.publisher.control_remove(&[gone], Manner::Graceful).unwrap();
    assert!(bench.stage.last().refused.is_empty(), "a missing root can be removed too");
    bench.client(&["b"]);
    bench.expect(ListState::Active, Authority::Client, &["b"]);
}

#[test]
fn a_missing_root_appears_and_a_replaced_one_is_new() {
    let bench = Bench::new(AuthorityPolicy::Client, &[]);
    bench.client(&["a", "late"]);
    bench.expect(ListState::Active, Authority::Client, &["a"]);
    let late = bench.dir.path().join("late");
    fs::create_dir(&late).unwrap();
    bench.soon(&["a", "late"]);
    let first = bench.stage.last().by_entry(b"late").unwrap().instance;
    fs::remove_dir(&late).unwrap();
    bench.soon(&["a"]);
    fs::create_dir(&late).unwrap();
    bench.soon(&["a", "late"]);
    assert_ne!(first, bench.stage.last().by_entry(b"late").unwrap().instance);
    assert_eq!(bench.stage.last().by_entry(b"a").unwrap().instance.0, 1, "undisturbed");
}

/// A source that answers what it was told to, or gives a newer list while it is asked.
struct FakeSource {
    answer: Mutex<Result<Vec<RootInput>, String>>,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl RootSource for FakeSource {
    fn authority(&self) -> Authority {
        Authority::Client
    }

    fn ask(&self, _timeout: Duration) -> Result<Option<Vec<RootInput>>, String> {
        if let Some(meanwhile) = self.meanwhile.lock().take() {
            meanwhile();
        }
        self.answer.lock().clone().map(Some)
    }
}

#[test]
fn refresh_asks_the_source() {
    let bench = Bench::new(AuthorityPolicy::Client, &[]);
    let source = Arc::new(FakeSource { answer: Mutex::new(Ok(bench.list(&["a"]))), meanwhile: Mutex::new(None) });
    bench.publisher.add_source(Arc::clone(&source) as Arc<dyn RootSource>);
    bench.publisher.refresh(Duration::from_secs(1)).unwrap();
    bench.expect(ListState::Active, Authority::Client, &["a"]);
    *source.answer.lock() = Err("no answer".into());
    let error = bench.publisher.refresh(Duration::from_secs(1)).unwrap_err();
    assert_eq!(error, PublishError::Unavailable("no answer".into()));
    bench.expect(ListState::Unavailable, Authority::Client, &[]);
}

#[test]
fn an_overtaken_answer_is_dropped() {
    let bench = Bench::new(AuthorityPolicy::Client, &[]);
    let Bench { stage, publisher, .. } = &bench;
    let publisher_lists = (bench.list(&["a"]), bench.list(&["b"]));
    std::thread::scope(|scope| {
        let (asked, go) = mpsc::channel::<()>();
        let (done, wait) = mpsc::channel::<()>();
        let meanwhile = Box::new(move || {
            asked.send(()).unwrap();
            wait.recv().unwrap();
        });
        let source = FakeSource { answer: Mutex::new(Ok(publisher_lists.0)), meanwhile: Mutex::new(Some(meanwhile)) };
        publisher.add_source(Arc::new(source));
        let refresh = scope.spawn(|| publisher.refresh(Duration::from_secs(5)));
        go.recv().unwrap();
        publisher.set_client(publisher_lists.1, Trigger::ListChanged).unwrap();
        done.send(()).unwrap();
        refresh.join().unwrap().unwrap();
    });
    assert_eq!(shown(&stage.last()), ["b"]);
}

#[test]
fn a_thousand_sets() {
    let bench = Bench::new(AuthorityPolicy::Client, &[]);
    for round in 0..1000 {
        let names: &[&str] = if round % 2 == 0 { &["a", "b"] } else { &["b", "c"] };
        assert_eq!(bench.publisher.control_set(bench.list(names)).unwrap().generation, round + 2);
    }
    let last = bench.stage.last();
    assert_eq!(last.by_entry(b"b").unwrap().instance.0, 2, "retained all along");
    assert_eq!(bench.stage.generations(), (1..=1001).collect::<Vec<_>>());
}

#[test]
fn callers_from_many_threads() {
    let bench = Bench::new(AuthorityPolicy::Client, &[]);
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let bench = &bench;
            scope.spawn(move || {
                let mut last = 0;
                for _ in 0..100 {
                    let generation = bench.publisher.control_set(bench.list(&[name])).unwrap().generation;
                    assert!(generation > last);
                    assert!(
                        bench.publisher.status().snapshot.generation >= generation,
                        "in force when the call returns"
                    );
                    last = generation;
                }
            });
        }
    });
    assert_eq!(bench.stage.generations(), (1..=301).collect::<Vec<_>>());
}

#[test]
fn dropping_ends_the_thread() {
    let bench = Bench::new(AuthorityPolicy::Client, &["a"]);
    let stage = Arc::clone(&bench.stage);
    drop(bench);
    assert_eq!(Arc::strong_count(&stage), 1, "nobody holds the stage any more");
}

fn _shared_between_threads(publisher: Publisher) -> impl Send + Sync {
    publisher
}

/// A client that declared roots and then turned out not to do them.
struct Mute;

impl RootSource for Mute {
    fn authority(&self) -> Authority {
        Authority::Client
    }

    fn ask(&self, _timeout: Duration) -> Result<Option<Vec<RootInput>>, String> {
        Ok(None)
    }
}

#[test]
fn a_source_without_lists_takes_nothing_away() {
    let bench = Bench::new(AuthorityPolicy::Client, &["a"]);
    bench.publisher.client_unsupported().unwrap();
    bench.publisher.add_source(Arc::new(Mute));
    bench.publisher.refresh(Duration::from_secs(1)).unwrap();
    bench.expect(ListState::Active, Authority::CommandLine, &["a"]);
}
