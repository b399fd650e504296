//! The commands that keep a view alive: `mount`, `mcp`, and the first look.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::Context;
use rootsfs::publisher::PublisherOptions;
use rootsfs::record::{FileSink, RecordOptions, Sink};
use rootsfs::roots::AuthorityPolicy;
use rustix::process::{Resource, Rlimit};

use crate::cli::{McpArgs, MountArgs, ViewArgs};
use crate::mcp::{self, McpOptions};
use crate::mounts::shell;
use crate::roots_file::RootsFile;
use crate::service::{End, Service, ServiceOptions, StartError};
use crate::{detach, inputs, signals};

/// `rootsfs mount`.
pub(crate) fn mount(args: MountArgs) -> anyhow::Result<ExitCode> {
    if args.detach && !args.detached {
        return detach::start();
    }
    let (service, ended) = match start(&args.view, Some(args.mountpoint), None)? {
        Ok(running) => running,
        Err(error) => return Ok(refuse(&error)),
    };
    if args.detached {
        detach::ready()?;
    } else {
        eprintln!("view at {}", service.view.mountpoint().display());
    }
    Ok(stay(&service, &ended))
}

/// Plain `rootsfs`: the current directory as the one root.
pub(crate) fn first_look() -> anyhow::Result<ExitCode> {
    let here = std::env::current_dir().context("cannot tell the current directory")?;
    let view = ViewArgs { roots: vec![here.into_os_string()], require_root: true, ..ViewArgs::default() };
    let (service, ended) = match start(&view, None, None)? {
        Ok(running) => running,
        Err(error) => return Ok(refuse(&error)),
    };
    let mountpoint = service.view.mountpoint();
    let m = shell(mountpoint);
    let entry = service.status().roots.into_iter().find_map(|root| root.entry).unwrap_or_default();
    let inside = shell(&mountpoint.join(&entry));
    let entry = shell(entry.as_ref());
    let rootsfs = name_of_program();
    eprintln!(
        "This directory is now the one root of a view at\n\n    {m}\n\n\
         Try, in another terminal:\n\n    \
         ls {inside}\n    \
         rg TODO {inside}\n    \
         {rootsfs} check {m} /etc/passwd   # outside every root\n    \
         {rootsfs} roots {m} remove {entry}   # and look again: it is gone\n    \
         {rootsfs} status {m}\n    \
         {rootsfs} log {m}\n\n\
         An MCP client starts its own view with `rootsfs mcp`. Ctrl-C unmounts."
    );
    Ok(stay(&service, &ended))
}

/// How this program is called from elsewhere: by its path where it was started by one, as `cargo run` does.
fn name_of_program() -> String {
    let by_path = std::env::args_os().next().is_some_and(|name| name.as_encoded_bytes().contains(&b'/'));
    let path = if by_path { std::env::current_exe().ok() } else { None };
    path.map_or_else(|| "rootsfs".into(), |path| shell(&path))
}

/// `rootsfs mcp`.
pub(crate) fn mcp(args: McpArgs) -> anyhow::Result<ExitCode> {
    let (service, ended) = match start(&args.view, args.mountpoint, Some(args.hold))? {
        Ok(running) => running,
        Err(error) => return Ok(refuse(&error)),
    };
    eprintln!("view at {}", service.view.mountpoint().display());
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            service.shutdown();
            return Err(error).context("cannot start the MCP server");
        }
    };
    let serving = mcp::serve_stdio(Arc::clone(&service), McpOptions { refresh_timeout: args.refresh_timeout });
    let served = runtime.block_on(async {
        tokio::select! {
            served = serving => Some(served),
            _ = tokio::task::spawn_blocking(move || ended.recv()) => None,
        }
    });
    // A read of standard input cannot be cancelled; the process's end does it.
    runtime.shutdown_background();
    let code = match served {
        Some(Err(error)) => {
            eprintln!("rootsfs: {error}");
            error.exit_code()
        }
        Some(Ok(())) | None => 0,
    };
    finish(&service);
    Ok(ExitCode::from(code))
}

/// Starts the service with signals handled from the first moment on. With `client`, one is to come, and file operations wait
/// so long for a list that it announces.
#[allow(clippy::type_complexity, reason = "the outer error is the machine's, the inner one has an exit code")]
fn start(
    view: &ViewArgs,
    mountpoint: Option<PathBuf>,
    client: Option<Duration>,
) -> anyhow::Result<Result<(Arc<Service>, Receiver<End>), StartError>> {
    raise_descriptor_limit();
    let (sender, ended) = channel();
    signals::handle(sender.clone()).context("cannot handle signals")?;
    let command_line = view.roots.iter().map(|root| inputs::root(root)).collect::<Result<_, _>>();
    let file = match view.roots_file.as_deref().map(RootsFile::open).transpose() {
        Ok(file) => file,
        Err(why) => return Ok(Err(StartError::NoRoots(why))),
    };
    let (file, command_line) = match file {
        Some((file, list)) => (Some(file), list),
        None => (None, command_line?),
    };
    let options = ServiceOptions {
        mountpoint,
        policy: view.policy()?,
        allow_other: view.allow_other,
        record: RecordOptions {
            level: view.record.into(),
            sink: sink(view)?,
            strict: view.record_strict,
            session: String::new(),
        },
        publisher: PublisherOptions {
            policy: AuthorityPolicy::from(view.authority),
            judge: view.judge()?,
            command_line,
            expects_client: client.is_some(),
        },
        hold: client.unwrap_or_default(),
        require_root: view.require_root,
        ended: sender,
    };
    let started = Service::start(options);
    if let Ok(service) = &started {
        if let Some(file) = file {
            file.follow(&service.publisher).context("the list file cannot be followed")?;
            service.publisher.add_source(file);
        }
        // Without a supervisor this does nothing.
        if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
            tracing::warn!(%error, "readiness could not be said");
        }
    }
    Ok(started.map(|service| (service, ended)))
}

/// The record goes to the file that was named; else to standard error where that is the journal; else it stays in memory.
fn sink(view: &ViewArgs) -> std::io::Result<Sink> {
    Ok(match &view.record_file {
        Some(path) if path.as_os_str() == "-" => Sink::Stderr,
        Some(path) => Sink::File(FileSink::new(std::path::absolute(path)?)),
        None if crate::under_journald() => Sink::Stderr,
        None => Sink::None,
    })
}

fn refuse(error: &StartError) -> ExitCode {
    eprintln!("rootsfs: {error}");
    ExitCode::from(error.exit_code())
}

/// Waits for the end and makes it a clean one.
fn stay(service: &Service, ended: &Receiver<End>) -> ExitCode {
    // The signals' thread holds a sender for the whole life of the process.
    let _ = ended.recv();
    finish(service);
    ExitCode::SUCCESS
}

fn finish(service: &Service) {
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    signals::bound_the_end(service.view.mountpoint().to_path_buf());
    service.shutdown();
}

/// Each cached object costs a descriptor, and the usual soft limit is made for `select(2)`.
fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the soft limit of open descriptors stays");
    }
}
