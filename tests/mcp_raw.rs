//! A scripted MCP peer that misbehaves: newline-delimited JSON-RPC over pipes, protocol 2025-11-25 unless said otherwise.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use common::{Trees, eventually, is_mounted};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// How long an answer may take that waits for nothing.
const PROMPT: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(15);

/// What the peer does when it is asked for its roots.
#[derive(Clone)]
enum Roots {
    Result(Value),
    Error(i64),
    Silent,
}

struct Peer {
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Value>,
    roots: Roots,
    /// `roots/list` requests so far.
    asked: usize,
    last_id: u64,
    trees: Trees,
}

impl Peer {
    /// Starts `rootsfs mcp` with further arguments.
    fn start(trees: Trees, args: &[&str]) -> Self {
        let log = File::create(trees.file("log")).unwrap();
        let mut command = trees.command(&[&["mcp", "--mountpoint", trees.m()], args].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let message =
                    serde_json::from_str(&line).unwrap_or_else(|e| panic!("stdout holds no JSON ({e}): {line}"));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, messages, roots: Roots::Silent, asked: 0, last_id: 0, trees }
    }

    /// Starts and shakes hands as a client that declares roots.
    fn with_roots(trees: Trees, args: &[&str], roots: Roots) -> Self {
        let mut peer = Self::start(trees, args);
        peer.roots = roots;
        peer.initialize(json!({"roots": {"listChanged": true}}));
        peer
    }

    fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{message}").and_then(|()| stdin.flush()).unwrap();
    }

    fn notify(&mut self, method: &str) {
        self.send(&json!({"jsonrpc": "2.0", "method": method}));
    }

    fn changed(&mut self, roots: Roots) {
        self.roots = roots;
        self.notify("notifications/roots/list_changed");
    }

    /// The next message that is no request for roots; those are answered as `roots` says.
    fn next(&mut self, limit: Duration) -> Option<Value> {
        let end = Instant::now() + limit;
        loop {
            let message = self.messages.recv_timeout(end.saturating_duration_since(Instant::now())).ok()?;
            if message["method"] != "roots/list" {
                return Some(message);
            }
            self.asked += 1;
            let id = &message["id"];
            match self.roots.clone() {
                Roots::Result(result) => self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result})),
                Roots::Error(code) => {
                    self.send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}}));
                }
                Roots::Silent => {}
            }
        }
    }

    /// A request and its whole response.
    #[track_caller]
    fn request(&mut self, method: &str, params: Value, limit: Duration) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let end = Instant::now() + limit;
        loop {
            let Some(message) = self.next(end.saturating_duration_since(Instant::now())) else {
                panic!("{method}: no answer within {limit:?}: {}", self.log());
            };
            if message["id"] == id {
                return message;
            }
        }
    }

    #[track_caller]
    fn initialize(&mut self, capabilities: Value) -> Value {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
                            "clientInfo": {"name": "raw", "version": "1"}});
        let answer = self.request("initialize", params, PROMPT * 2);
        if answer.get("result").is_some() {
            self.notify("notifications/initialized");
        }
        answer
    }

    /// The structured content of a tool call.
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments}), LIMIT);
        assert_ne!(answer["result"]["isError"], true, "{answer:#}");
        answer["result"]["structuredContent"].clone()
    }

    #[track_caller]
    fn status(&mut self) -> Value {
        self.call("view_status", json!({}))
    }

    /// Waits for a state, answering requests meanwhile.
    #[track_caller]
    fn until(&mut self, state: &str) -> Value {
        let end = Instant::now() + LIMIT;
        loop {
            let status = self.status();
            if status["state"] == state {
                return status;
            }
            assert!(Instant::now() < end, "never {state}: {status:#}");
            let _ = self.next(Duration::from_millis(50));
        }
    }

    /// What stands at the top of the view.
    fn entries(&self) -> Vec<String> {
        let mount = self.trees.site.mount.clone();
        common::within(common::STEP, "list the view", move || {
            let mut names: Vec<_> =
                fs::read_dir(mount).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        })
    }

    fn uri(&self, name: &str) -> String {
        uri(&self.trees, name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.trees.file("log")).unwrap_or_default()
    }

    /// Waits for the end; the exit code.
    #[track_caller]
    fn ended(&mut self, limit: Duration) -> i32 {
        let mut status = None;
        eventually(limit, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap_or_else(|| panic!("alive after {limit:?}: {}", self.log()));
        status.code().unwrap_or_else(|| panic!("{status}: {}", self.log()))
    }

    /// [`Self::ended`] for a graceful end: exit 0, nothing mounted.
    #[track_caller]
    fn ended_well(&mut self) {
        assert_eq!(self.ended(Duration::from_secs(3)), 0, "{}", self.log());
        assert!(!is_mounted(&self.trees.site.mount), "still mounted: {}", self.log());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stdin = None;
        if !eventually(Duration::from_secs(3), || matches!(self.child.try_wait(), Ok(Some(_)))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let mount = &self.trees.site.mount;
        for (program, flag) in [("fusermount3", "-uz"), ("umount", "-l")] {
            if is_mounted(mount) {
                drop(Command::new("timeout").args(["5", program, flag]).arg(mount).output());
            }
        }
    }
}

fn uri(trees: &Trees, name: &str) -> String {
    format!("file://{}", trees.site.native(name).display())
}

fn list(uris: &[String]) -> Roots {
    Roots::Result(json!({"roots": uris.iter().map(|uri| json!({"uri": uri})).collect::<Vec<_>>()}))
}

/// Trees `a` and `b`, with `a` on the command line or not.
fn trees() -> (Trees, String) {
    let trees = Trees::new(&["a", "b"]);
    fs::write(trees.site.native("a/f"), "text").unwrap();
    let a = trees.site.native("a").to_str().unwrap().to_owned();
    (trees, a)
}

as_root_and_user! {
    fn no_capability_and_no_root_is_refused() {
        let mut peer = Peer::start(trees().0, &[]);
        let answer = peer.initialize(json!({}));
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("--root"), "{message}");
        assert_eq!(peer.ended(Duration::from_secs(5)), 3);
        assert!(!is_mounted(&peer.trees.site.mount));
    }

    fn no_capability_is_never_asked() {
        let (trees, a) = trees();
        let mut peer = Peer::start(trees, &["--root", &a]);
        peer.initialize(json!({}));
        let status = peer.status();
        assert_eq!((&status["state"], &status["authority"]), (&json!("active"), &json!("command-line")));
        assert!(peer.next(Duration::from_millis(700)).is_none());
        peer.notify("notifications/roots/list_changed");
        peer.status();
        assert_eq!(peer.asked, 0);
        assert_eq!(peer.entries(), ["a"]);
    }

    fn an_empty_list_is_an_empty_view() {
        let (trees, a) = trees();
        let mut peer = Peer::with_roots(trees, &["--root", &a], list(&[]));
        let status = peer.status();
        assert_eq!((&status["state"], &status["authority"]), (&json!("active"), &json!("client")));
        assert_eq!(peer.entries(), [""; 0]);
    }

    /// From the notice until the list is there a call waits, and then finds out what has become of its root; if nobody gives the
    /// list, it ends with ETIMEDOUT. The top directory always answers.
    fn calls_wait_for_a_list_that_was_announced() {
        let (trees, _) = trees();
        fs::write(trees.site.native("b/f"), "text").unwrap();
        let (a, b) = (uri(&trees, "a"), uri(&trees, "b"));
        let options = ["--hold", "1.5", "--refresh-timeout", "20"];
        let mut peer = Peer::with_roots(trees, &options, list(&[a, b.clone()]));
        peer.until("active");
        let read = |peer: &Peer, name: &str| {
            let file = peer.trees.site.view(name);
            std::thread::spawn(move || {
                let since = Instant::now();
                let read = common::within(common::STEP, "read", move || fs::read_to_string(file));
                (read.map_err(|error| error.raw_os_error().unwrap()), since.elapsed())
            })
        };
        let mut held = common::within(common::STEP, "open", {
            let file = peer.trees.site.view("a/f");
            move || File::open(file).unwrap()
        });

        // Its request is not answered before it is looked at.
        peer.changed(list(std::slice::from_ref(&b)));
        std::thread::sleep(Duration::from_millis(300));
        let (going, staying) = (read(&peer, "a/f"), read(&peer, "b/f"));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!going.is_finished() && !staying.is_finished(), "nothing is read while nobody knows what may be");
        assert_eq!(peer.entries(), ["a", "b"]);
        peer.until("active");
        let (read_b, took) = staying.join().unwrap();
        assert_eq!(read_b.as_deref(), Ok("text"));
        assert!(took < Duration::from_millis(1500), "{took:?}");
        let refused = going.join().unwrap().0.unwrap_err();
        assert!([libc::ENOENT, libc::ESTALE].contains(&refused), "{refused}");
        let refused = common::within(common::STEP, "read what was open", move || {
            std::io::Read::read_to_string(&mut held, &mut String::new()).unwrap_err().raw_os_error()
        });
        assert!([Some(libc::EIO), Some(libc::ESTALE)].contains(&refused), "{refused:?}");

        peer.changed(Roots::Silent);
        std::thread::sleep(Duration::from_millis(300));
        let (late, took) = read(&peer, "b/f").join().unwrap();
        assert_eq!(late, Err(libc::ETIMEDOUT));
        assert!((Duration::from_millis(1200)..Duration::from_secs(6)).contains(&took), "{took:?}");
        assert_eq!(peer.entries(), ["b"]);
        // A view with calls that wait ends like any other.
        let waiting = read(&peer, "b/f");
        std::thread::sleep(Duration::from_millis(200));
        peer.stdin = None;
        peer.ended_well();
        assert!(waiting.join().unwrap().0.is_err());
    }

    fn bad_elements_are_refused_singly() {
        let (trees, _) = trees();
        let good = uri(&trees, "a");
        let bad = [
            (json!({"uri": "https://example.org/x"}), "non-file-uri"),
            (json!({"uri": "file://example.org/x"}), "remote-authority"),
            (json!({"uri": format!("{good}%2Ff")}), "malformed-uri"),
            (json!({"uri": "a/b"}), "relative-path"),
            (json!("not an object"), "malformed-uri"),
            (json!({"uri": uri(&trees, "gone")}), "not-found"),
        ];
        let mut roots: Vec<_> = bad.iter().map(|(element, _)| element.clone()).collect();
        roots.insert(3, json!({"uri": good, "name": "The good one"}));
        let mut peer = Peer::with_roots(trees, &[], Roots::Result(json!({"roots": roots})));
        let status = peer.status();
        let listed = status["roots"].as_array().unwrap();
        assert_eq!(listed.len(), roots.len(), "{status:#}");
        for (element, reason) in bad {
            let sent = element["uri"].as_str().map_or_else(|| element.to_string(), str::to_owned);
            let root = listed.iter().find(|root| root["uri"] == sent).unwrap_or_else(|| panic!("{sent}: {status:#}"));
            assert_eq!(root["reason"], reason, "{root}");
            assert_ne!(root["status"], "active", "{root}");
        }
        assert_eq!(peer.entries(), ["a"]);
    }

    fn a_call_after_a_notice_sees_the_new_list() {
        let (trees, _) = trees();
        let (a, b) = (uri(&trees, "a"), uri(&trees, "b"));
        let mut peer = Peer::with_roots(trees, &[], list(&[a]));
        let before = peer.status()["generation"].as_u64().unwrap();
        peer.changed(list(&[b]));
        let after = peer.status();
        assert!(after["generation"].as_u64().unwrap() > before, "{after:#}");
        assert_eq!((&after["state"], &after["roots"][0]["entry"]), (&json!("active"), &json!("b")));
        assert_eq!(peer.entries(), ["b"]);
    }

    fn a_silent_client_is_unavailable_and_comes_back() {
        let (trees, a) = trees();
        let mut peer = Peer::with_roots(trees, &["--root", &a, "--refresh-timeout", "1"], Roots::Silent);
        // Nothing waits for the client but the list.
        let tools = peer.request("tools/list", json!({}), PROMPT);
        assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 4);
        peer.until("unavailable");
        assert_eq!(peer.entries(), [""; 0]);
        let b = peer.uri("b");
        peer.changed(list(std::slice::from_ref(&b)));
        peer.until("active");
        assert_eq!(peer.entries(), ["b"]);
        // A whole result that is none, after a good one.
        for malformed in [json!({}), json!({"roots": "b"})] {
            peer.changed(Roots::Result(malformed));
            peer.until("unavailable");
            assert_eq!(peer.entries(), [""; 0]);
            peer.changed(list(std::slice::from_ref(&b)));
            peer.until("active");
            assert_eq!(peer.entries(), ["b"]);
        }
    }

    fn method_not_found_keeps_the_command_line() {
        let (trees, a) = trees();
        let mut peer = Peer::with_roots(trees, &["--root", &a], Roots::Error(-32601));
        let status = peer.status();
        assert_eq!((&status["state"], &status["authority"]), (&json!("active"), &json!("command-line")), "{status:#}");
        assert_eq!(peer.entries(), ["a"]);
    }

    fn a_burst_costs_few_requests() {
        let (trees, _) = trees();
        let a = uri(&trees, "a");
        let mut peer = Peer::with_roots(trees, &[], list(std::slice::from_ref(&a)));
        peer.status();
        let before = peer.asked;
        for _ in 0..300 {
            peer.notify("notifications/roots/list_changed");
        }
        // Answers late, and insists that nothing further is asked meanwhile.
        let mut asked = 0;
        while let Ok(request) = peer.messages.recv_timeout(Duration::from_secs(1)) {
            assert_eq!(request["method"], "roots/list", "{request}");
            asked += 1;
            let second = peer.messages.recv_timeout(Duration::from_millis(40));
            assert!(second.is_err(), "asked again before the answer: {second:?}");
            peer.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": {"roots": [{"uri": a}]}}));
        }
        assert_eq!(before, 1);
        assert!((1..=40).contains(&asked), "{asked} requests");
        assert_eq!(peer.status()["state"], "active");
        assert_eq!(peer.entries(), ["a"]);
    }

    fn tools_keep_their_schemas() {
        let (trees, _) = trees();
        let a = uri(&trees, "a");
        let mut peer = Peer::with_roots(trees, &[], list(&[a]));
        let tools = peer.request("tools/list", json!({}), PROMPT)["result"]["tools"].clone();
        let file = peer.trees.site.native("a/f");
        let outside = peer.trees.site.native("b/x");
        for (name, arguments) in [
            ("view_status", json!({})),
            ("refresh_roots", json!({})),
            ("explain_access", json!({"path": file, "operation": "read"})),
            ("explain_access", json!({"path": outside, "operation": "create"})),
            ("boundary_log", json!({"limit": 5})),
        ] {
            let tool = tools.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
            let content = peer.call(name, arguments);
            for key in tool["outputSchema"]["required"].as_array().unwrap() {
                assert!(content.get(key.as_str().unwrap()).is_some(), "{name} lacks {key}: {content:#}");
            }
        }
        let allowed = peer.call("explain_access", json!({"path": "a/f", "operation": "read"}));
        assert_eq!((&allowed["decision"], &allowed["root"]), (&json!("allow"), &json!("a")), "{allowed:#}");
        let denied = peer.call("explain_access", json!({"path": "/etc/hostname", "operation": "read"}));
        assert_eq!((&denied["decision"], &denied["reason"]), (&json!("deny"), &json!("outside-root")), "{denied:#}");
        let log = peer.call("boundary_log", json!({}));
        let snapshot = log["events"].as_array().unwrap().iter().rfind(|event| event["event"] == "snapshot").unwrap();
        for key in ["time", "generation", "trigger", "old", "new", "revoked", "added", "retained", "result"] {
            assert!(snapshot.get(key).is_some(), "no {key}: {snapshot:#}");
        }
        let error = peer.request("tools/call", json!({"name": "explain_access", "arguments": {}}), PROMPT);
        assert_eq!(error["result"]["isError"], true, "{error:#}");
    }

    fn ends_cleanly_also_when_busy() {
        for signal in [Some(Signal::TERM), Some(Signal::INT), None] {
            let (trees, _) = trees();
            let a = uri(&trees, "a");
            let mut peer = Peer::with_roots(trees, &[], list(&[a]));
            peer.status();
            let mut busy = Command::new("sleep").arg("30").stdin(File::open(peer.trees.site.view("a/f")).unwrap()).spawn().unwrap();
            match signal {
                Some(signal) => kill_process(Pid::from_child(&peer.child), signal).unwrap(),
                None => peer.stdin = None,
            }
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| peer.ended_well()));
            busy.kill().unwrap();
            busy.wait().unwrap();
            code.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }

    fn without_sessions_the_list_comes_with_the_call() {
        let (trees, _) = trees();
        let a = uri(&trees, "a");
        let mut peer = Peer::start(trees, &[]);
        let call = |more: Value| {
            let mut params = json!({"name": "view_status", "arguments": {}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {"roots": {}}}});
            params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            params
        };
        let first = peer.request("tools/call", call(json!({})), PROMPT * 2)["result"].clone();
        assert_eq!(first["resultType"], "input_required", "{first:#}");
        assert_eq!(first["inputRequests"]["roots"]["method"], "roots/list", "{first:#}");
        let answer = json!({"inputResponses": {"roots": {"roots": [{"uri": a}]}}, "requestState": first["requestState"]});
        let second = peer.request("tools/call", call(answer), PROMPT * 2)["result"].clone();
        let status = &second["structuredContent"];
        assert_eq!((&status["state"], &status["roots"][0]["entry"]), (&json!("active"), &json!("a")), "{second:#}");
        assert_eq!(peer.entries(), ["a"]);
        assert_eq!(peer.asked, 0);
    }
}
