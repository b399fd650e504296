//! The `rootsfs` command: it mounts views, serves MCP, and asks the daemons that run.

mod ask;
mod cli;
mod control;
mod control_client;
mod detach;
mod doctor;
mod handler;
mod inputs;
mod mcp;
mod mounts;
mod roots_file;
mod run;
mod runtime;
mod service;
mod show;
mod signals;
mod status;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Command};
use crate::control::Failure;

fn main() -> ExitCode {
    let cli = Cli::parse();
    trace();
    match dispatch(cli.command) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rootsfs: {error:#}");
            ExitCode::from(error.downcast_ref::<Failure>().map_or(1, |failure| failure.code))
        }
    }
}

fn dispatch(command: Option<Command>) -> anyhow::Result<ExitCode> {
    match command {
        None => run::first_look(),
        Some(Command::Mount(args)) => run::mount(args),
        Some(Command::Mcp(args)) => run::mcp(args),
        Some(Command::Roots(args)) => ask::roots(args),
        Some(Command::Status { mountpoint, json }) => ask::status(mountpoint.as_deref(), json),
        Some(Command::Log(args)) => ask::log(&args),
        Some(Command::Check(args)) => ask::check(args),
        Some(Command::Unmount { mountpoint }) => ask::unmount(&mountpoint),
        Some(Command::Doctor { json }) => {
            let findings = doctor::examine();
            if json {
                ask::json(&findings)?
            } else {
                ask::print(&doctor::report(&findings))?
            };
            Ok(ExitCode::from(u8::from(findings.iter().any(doctor::Finding::blocks))))
        }
    }
}

/// Messages for people and for the journal go to standard error; `ROOTSFS_LOG` sets what is said. By default warnings, but
/// not fuser's of a mount that our own ladder has taken away before it.
fn trace() {
    let filter = EnvFilter::try_from_env("ROOTSFS_LOG").unwrap_or_else(|_| EnvFilter::new("warn,fuser::mnt=off"));
    let format = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    let colours = io::IsTerminal::is_terminal(&io::stderr());
    if under_journald() {
        format.without_time().with_ansi(false).init();
    } else {
        format.with_ansi(colours).init();
    }
}

/// systemd.exec(5): set when standard output or error is connected to the journal.
fn under_journald() -> bool {
    std::env::var_os("JOURNAL_STREAM").is_some()
}

/// `rootsfs log M | head` ends quietly.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(broken))
}
