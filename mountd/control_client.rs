//! The asking end of the control socket.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::control::{self, Answer, Envelope, Failure, Request, VERSION};
use crate::runtime::{self, Entry};
use crate::{mounts, mounts::shell};

/// How long an answer may take: a publication may have to wait for a slow backing file system.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// A conversation with one daemon.
pub(crate) struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Message {
    Event(Value),
    #[serde(untagged)]
    Answer(Answer),
}

impl Client {
    /// Speaks to the daemon of the view at `mountpoint`.
    ///
    /// # Errors
    /// There is none; the message says what is there instead.
    pub(crate) fn of(mountpoint: &Path) -> Result<Self, Failure> {
        let path = mounts::canonical(mountpoint);
        match runtime::at(&path) {
            Some(entry) => Self::to(&entry),
            None if mounts::is_ours(&path) => Err(Failure::new(format!(
                "the view at {} has no daemon of yours; if it is dead, end it with: rootsfs unmount {}",
                path.display(),
                shell(&path)
            ))),
            None => Err(Failure::new(format!("no view at {}; `rootsfs status` lists yours", path.display()))),
        }
    }

    /// Speaks to the daemon of a registered view.
    pub(crate) fn to(entry: &Entry) -> Result<Self, Failure> {
        let connect = || {
            let stream = UnixStream::connect(&entry.socket)?;
            stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
            Ok(Self { reader: BufReader::new(stream.try_clone()?), stream })
        };
        connect().map_err(|error: std::io::Error| {
            Failure::new(format!("cannot reach the daemon at {}: {error}", entry.socket.display()))
        })
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, request: Request) -> Result<T, Failure> {
        let answer = self.stream(request, |_| Ok(()))?;
        serde_json::from_value(answer).map_err(|error| Failure::new(format!("the daemon's answer is odd: {error}")))
    }

    /// Asks, hands each event over, and returns the answer.
    pub(crate) fn stream(
        &mut self,
        request: Request,
        mut event: impl FnMut(&Value) -> std::io::Result<()>,
    ) -> Result<Value, Failure> {
        if matches!(request, Request::Log { follow: true, .. }) {
            self.stream.set_read_timeout(None).map_err(lost)?;
        }
        control::send(&self.stream, &Envelope { v: VERSION, body: request }).map_err(lost)?;
        let mut line = Vec::new();
        loop {
            line.clear();
            if self.reader.read_until(b'\n', &mut line).map_err(lost)? == 0 {
                return Err(Failure::new("the daemon ended without an answer"));
            }
            match serde_json::from_slice::<Envelope<Message>>(&line).map(|envelope| envelope.body) {
                Ok(Message::Event(body)) => event(&body).map_err(|error| Failure::new(error.to_string()))?,
                Ok(Message::Answer(Answer::Ok(value))) => return Ok(value),
                Ok(Message::Answer(Answer::Error(failure))) => return Err(failure),
                Err(error) => return Err(Failure::new(format!("the daemon's answer is odd: {error}"))),
            }
        }
    }
}

fn lost(error: std::io::Error) -> Failure {
    Failure::new(format!("the daemon cannot be reached any more: {error}"))
}
