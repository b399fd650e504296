//! The control socket: who may speak, and how. What is done is the [`Handler`]'s.
//!
//! One JSON object a line in each direction. A request is `{"v":1,"do":"roots-add","roots":[…]}`; the answer is
//! `{"v":1,"ok":…}` or `{"v":1,"error":{"code":1,"message":"…"}}`, where the code is the exit code of the command. `log`
//! sends any number of `{"v":1,"event":{…}}` before its answer. A malformed or over-long line is answered with an error and
//! the connection goes on.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rootsfs::authorize::Op;
use rootsfs::roots::RootInput;
use rustix::net::RecvFlags;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The version of the protocol; a peer of another one is refused with a sentence.
pub(crate) const VERSION: u32 = 1;

/// The longest request, in bytes.
const REQUEST_MAX: usize = 1024 * 1024;

const CONNECTIONS_MAX: usize = 64;
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(crate) enum Request {
    RootsList,
    RootsSet { roots: Vec<RootInput> },
    RootsAdd { roots: Vec<RootInput> },
    RootsRemove { roots: Vec<String>, now: bool },
    RootsRefresh { timeout_ms: u64 },
    Status,
    Check { path: String, op: Op, to: Option<String>, generation: Option<u64> },
    Log { limit: Option<usize>, denied: bool, follow: bool },
    Unmount,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Envelope<T> {
    pub(crate) v: u32,
    #[serde(flatten)]
    pub(crate) body: T,
}

/// What comes back.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    Ok(Value),
    Error(Failure),
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    /// The exit code of the command that asked.
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }
}

/// Who asks, as the kernel says (`SO_PEERCRED`, `unix(7)`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) pid: u32,
}

/// Where a handler sends events before its answer.
pub(crate) trait Events {
    /// Sends one event: a JSON object.
    fn send(&mut self, event: &str) -> io::Result<()>;

    /// Whether the peer has hung up.
    fn gone(&self) -> bool;
}

/// What the daemon does when it is asked.
pub(crate) trait Handler: Send + Sync + 'static {
    fn handle(&self, peer: Peer, request: Request, events: &mut dyn Events) -> Result<Value, Failure>;
}

/// Serves the socket from a thread of its own, and each connection from another, for the rest of the process's life.
///
/// # Errors
/// No thread can be started.
pub(crate) fn serve(listener: UnixListener, handler: Arc<dyn Handler>) -> io::Result<()> {
    let open = Arc::new(AtomicUsize::new(0));
    std::thread::Builder::new().name("control".into()).spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Out of descriptors, most likely; the connection waits in the backlog.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let slot = Slot::take(&open);
            let handler = Arc::clone(&handler);
            let served = std::thread::Builder::new().name("control-peer".into()).spawn(move || {
                let served = match slot {
                    Some(_slot) => converse(&stream, &*handler),
                    None => refuse(&stream, "too many connections to the control socket; try again"),
                };
                if let Err(error) = served {
                    tracing::debug!(%error, "a control connection ended");
                }
            });
            if let Err(error) = served {
                tracing::warn!(%error, "a control connection was dropped");
            }
        }
    })?;
    Ok(())
}

/// One of the connections that may be open at a time.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    fn take(open: &Arc<AtomicUsize>) -> Option<Self> {
        let slot = Self(Arc::clone(open));
        (open.fetch_add(1, Ordering::AcqRel) < CONNECTIONS_MAX).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn refuse(stream: &UnixStream, message: &str) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    answer(stream, Err(Failure::new(message)))
}

/// Serves one connection until the peer hangs up.
fn converse(stream: &UnixStream, handler: &dyn Handler) -> io::Result<()> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let credentials = rustix::net::sockopt::socket_peercred(stream)?;
    let peer = Peer { uid: credentials.uid.as_raw(), pid: credentials.pid.as_raw_nonzero().get().unsigned_abs() };
    if peer.uid != 0 && peer.uid != rustix::process::getuid().as_raw() {
        return refuse(stream, "only the view's own user and root may control it");
    }
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        let answered = match read_line(&mut reader, &mut line)? {
            Line::End => return Ok(()),
            Line::TooLong => Err(Failure::new(format!("a request is at most {REQUEST_MAX} bytes"))),
            Line::Whole => decode(&line).and_then(|request| handler.handle(peer, request, &mut Connection(stream))),
        };
        answer(stream, answered)?;
    }
}

fn decode(line: &[u8]) -> Result<Request, Failure> {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    let malformed = |error| Failure { code: 2, message: format!("malformed request: {error}") };
    // The version first: a request of another one may not be readable at all.
    let Version { v } = serde_json::from_slice(line).map_err(malformed)?;
    if v != VERSION {
        let message = format!("the daemon speaks version {VERSION} of the control protocol, not {v}; use its rootsfs");
        return Err(Failure::new(message));
    }
    serde_json::from_slice(line).map_err(malformed)
}

fn answer(stream: &UnixStream, answer: Result<Value, Failure>) -> io::Result<()> {
    let body = match answer {
        Ok(value) => Answer::Ok(value),
        Err(failure) => Answer::Error(failure),
    };
    send(stream, &Envelope { v: VERSION, body })
}

/// Sends one line.
pub(crate) fn send<T: Serialize>(mut stream: &UnixStream, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

enum Line {
    Whole,
    TooLong,
    End,
}

/// Reads one line of at most [`REQUEST_MAX`] bytes; a longer one is skipped to its end.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
    let mut too_long = false;
    loop {
        line.clear();
        let read = reader.by_ref().take(REQUEST_MAX as u64).read_until(b'\n', line)?;
        let whole = line.last() == Some(&b'\n');
        match (read, whole) {
            (0, _) => return Ok(Line::End),
            (_, true) if too_long => return Ok(Line::TooLong),
            (_, true) => return Ok(Line::Whole),
            (read, false) if read < REQUEST_MAX => return Ok(Line::End),
            _ => too_long = true,
        }
    }
}

struct Connection<'a>(&'a UnixStream);

impl Events for Connection<'_> {
    fn send(&mut self, event: &str) -> io::Result<()> {
        #[derive(Serialize)]
        struct Event<'a> {
            event: &'a RawValue,
        }
        let event: &RawValue = serde_json::from_str(event)?;
        send(self.0, &Envelope { v: VERSION, body: Event { event } })
    }

    fn gone(&self) -> bool {
        let peeked = rustix::net::recv(self.0, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(peeked, Ok((1.., _)) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake;

    impl Handler for Fake {
        fn handle(&self, peer: Peer, request: Request, events: &mut dyn Events) -> Result<Value, Failure> {
            assert_eq!(peer.pid, std::process::id());
            match request {
                Request::RootsAdd { roots } => Ok(roots.len().into()),
                Request::Log { .. } => {
                    events.send("{\"n\":1}\n").unwrap();
                    assert!(!events.gone());
                    Ok(Value::Null)
                }
                _ => Err(Failure::new("no")),
            }
        }
    }

    /// Sends `lines` and returns what came back.
    fn converse_with(lines: &[u8]) -> Vec<String> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || converse(&theirs, &Fake).unwrap());
        (&ours).write_all(lines).unwrap();
        // Wait for every answer before hanging up: a peer that is gone is another test.
        let asked = lines.iter().filter(|byte| **byte == b'\n').count();
        let mut answers: Vec<String> = Vec::new();
        for line in BufReader::new(&ours).lines() {
            answers.push(line.unwrap());
            if answers.iter().filter(|answer| !answer.contains("event")).count() == asked {
                break;
            }
        }
        drop(ours);
        server.join().unwrap();
        answers
    }

    #[test]
    fn requests_are_answered_in_order() {
        let answers = converse_with(
            b"{\"v\":1,\"do\":\"roots-add\",\"roots\":[{\"uri\":\"/a\"}]}\n{\"v\":1,\"do\":\"log\",\"denied\":true,\"follow\":false}\n{\"v\":1,\"do\":\"status\"}\n",
        );
        let expected = [
            r#"{"v":1,"ok":1}"#,
            r#"{"v":1,"event":{"n":1}}"#,
            r#"{"v":1,"ok":null}"#,
            r#"{"v":1,"error":{"code":1,"message":"no"}}"#,
        ];
        assert_eq!(answers, expected);
    }

    #[test]
    fn a_bad_line_leaves_the_connection_usable() {
        let mut lines = b"nonsense\n\n{\"v\":2,\"do\":\"status\"}\n{\"v\":1,\"do\":\"fly\"}\n".to_vec();
        lines.extend(std::iter::repeat_n(b'x', REQUEST_MAX * 2 + 3));
        lines.extend(b"\n{\"v\":1,\"do\":\"roots-add\",\"roots\":[]}\n");
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || converse(&theirs, &Fake));
        let writer = ours.try_clone().unwrap();
        let writing = std::thread::spawn(move || (&writer).write_all(&lines));
        let answers: Vec<_> = BufReader::new(&ours).lines().take(6).map(Result::unwrap).collect();
        writing.join().unwrap().unwrap();
        assert!(answers[..2].iter().all(|answer| answer.contains("malformed")), "{answers:?}");
        assert!(answers[2].contains("version 1"));
        assert!(answers[3].contains("malformed"));
        assert!(answers[4].contains("at most"));
        assert_eq!(answers[5], r#"{"v":1,"ok":0}"#);
        ours.shutdown(std::net::Shutdown::Both).unwrap();
        server.join().unwrap().unwrap();
    }

    #[test]
    fn requests_survive_the_wire() {
        for request in [
            Request::RootsRemove { roots: vec!["app".into()], now: true },
            Request::Check { path: "p".into(), op: Op::Rename, to: Some("q".into()), generation: Some(3) },
            Request::Log { limit: Some(1), denied: true, follow: true },
            Request::RootsRefresh { timeout_ms: 5000 },
        ] {
            let line = serde_json::to_vec(&Envelope { v: VERSION, body: request.clone() }).unwrap();
            assert_eq!(decode(&line).unwrap(), request);
        }
    }
}
