//! The commands that ask a running daemon: `roots`, `status`, `log`, `check`, `unmount`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

use crate::cli::{CheckArgs, LogArgs, RootsArgs, RootsVerb};
use crate::control::{Failure, Request};
use crate::control_client::Client;
use crate::status::{Change, Status};
use crate::{inputs, mounts, runtime, show};

/// `rootsfs roots`.
pub(crate) fn roots(args: RootsArgs) -> anyhow::Result<ExitCode> {
    let inputs = |roots: Vec<std::ffi::OsString>| roots.iter().map(|root| inputs::root(root)).collect::<Result<_, _>>();
    let request = match args.verb {
        None => {
            let status: Status = Client::of(&args.mountpoint)?.ask(Request::RootsList)?;
            if args.json {
                return json(&status.roots);
            }
            return print(&show::roots(&status.roots));
        }
        Some(RootsVerb::Set { roots }) => Request::RootsSet { roots: inputs(roots)? },
        Some(RootsVerb::Add { roots }) => Request::RootsAdd { roots: inputs(roots)? },
        Some(RootsVerb::Remove { roots, now }) => {
            let roots = roots.iter().map(|root| inputs::selector(root)).collect::<Result<_, _>>()?;
            Request::RootsRemove { roots, now }
        }
        Some(RootsVerb::Refresh { timeout }) => {
            Request::RootsRefresh { timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX) }
        }
    };
    let mut client = Client::of(&args.mountpoint)?;
    let change: Change = client.ask(request)?;
    let status: Status = client.ask(Request::RootsList)?;
    for root in status.roots.iter().filter(|root| root.entry.is_none()) {
        eprintln!("rootsfs: left out: {}", root.detail.as_deref().unwrap_or(&root.uri));
    }
    if args.json { json(&change) } else { print(&format!("{}\n", show::change(&change))) }
}

/// `rootsfs status`.
pub(crate) fn status(mountpoint: Option<&Path>, as_json: bool) -> anyhow::Result<ExitCode> {
    if let Some(mountpoint) = mountpoint {
        let status: Status = Client::of(mountpoint)?.ask(Request::Status)?;
        return if as_json { json(&status) } else { print(&show::view(&status)) };
    }
    let mut views: Vec<Status> = Vec::new();
    for entry in runtime::running() {
        match Client::to(&entry).and_then(|mut client| client.ask(Request::Status)) {
            Ok(status) => views.push(status),
            // It may have ended since it was listed.
            Err(error) => tracing::warn!(mountpoint = entry.mountpoint, %error, "no answer"),
        }
    }
    if as_json {
        return json(&views);
    }
    if views.is_empty() {
        eprintln!("no view is running; start one with: rootsfs mount --root DIR MOUNTPOINT");
        return Ok(ExitCode::SUCCESS);
    }
    print(&show::views(&views))
}

/// `rootsfs log`.
pub(crate) fn log(args: &LogArgs) -> anyhow::Result<ExitCode> {
    let request = Request::Log { limit: args.limit, denied: args.denied, follow: args.follow };
    let mut out = std::io::stdout().lock();
    let streamed = Client::of(&args.mountpoint)?.stream(request, |event| {
        if args.denied && event.get("decision").and_then(Value::as_str) != Some("deny") {
            return Ok(());
        }
        let line = if args.json { event.to_string() } else { show::event(event) };
        writeln!(out, "{line}")?;
        out.flush()
    });
    match streamed {
        Ok(_) => Ok(ExitCode::SUCCESS),
        // The view has ended, and with it the log.
        Err(_) if args.follow => Ok(ExitCode::SUCCESS),
        Err(failure) => Err(failure.into()),
    }
}

/// `rootsfs check`: exit 0 for allow, 10 for deny.
pub(crate) fn check(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let message = match args.to {
        Some(_) if !args.op.takes_other_end() => {
            format!("--to is the other end of a rename or link, or the text of a symlink; {} has none", args.op)
        }
        None if args.op.needs_other_end() => format!("{} needs its other end: --to PATH", args.op),
        _ => String::new(),
    };
    if !message.is_empty() {
        return Err(Failure { code: 2, message }.into());
    }
    let request = Request::Check { path: args.path, op: args.op, to: args.to, generation: args.generation };
    let answer: Value = Client::of(&args.mountpoint)?.ask(request)?;
    if args.json {
        json(&answer)?;
    } else {
        print(&format!("{}\n", show::explanation(&answer)))?;
    }
    let allowed = answer.get("decision").and_then(Value::as_str) == Some("allow");
    Ok(ExitCode::from(if allowed { 0 } else { 10 }))
}

/// `rootsfs unmount`: by its daemon if that answers, else through the mount table.
pub(crate) fn unmount(mountpoint: &Path) -> anyhow::Result<ExitCode> {
    let path = mounts::canonical(mountpoint);
    if let Some(entry) = runtime::at(&path) {
        let asked: Result<Value, Failure> = Client::to(&entry).and_then(|mut client| client.ask(Request::Unmount));
        // A daemon that is done may end before its answer has left.
        if asked.is_ok() || !mounts::is_ours(&path) {
            return Ok(ExitCode::SUCCESS);
        }
    }
    mounts::end(&path)?;
    Ok(ExitCode::SUCCESS)
}

/// One JSON document.
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<ExitCode> {
    print(&format!("{}\n", serde_json::to_string(value)?))
}

pub(crate) fn print(text: &str) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
