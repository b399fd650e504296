//! `--detach`: the view goes on in a process of its own; the command returns once it is live.
//!
//! The command starts itself again with `--detached`, before it has made any thread, and reads the child's standard output:
//! one line says that the view is live; an end without it is a failure, which the child has put on the standard error
//! that both still share.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;

const READY: &str = "ready\n";

/// Starts the background process and waits until it is live or has failed.
pub(crate) fn start() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "rootsfs".into());
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.arg0(name);
    for argument in arguments {
        let here = argument == "mount";
        command.arg(argument);
        // Behind the first word only: later ones may follow a `--`.
        if here && command.get_args().len() == 1 {
            command.arg("--detached");
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start the background process")?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let code = child.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.filter(|code| *code != 0).unwrap_or(1)))
}

/// In the background process: leaves the terminal and the directory it was started from, says that the view is live, and
/// lets go of the starter's output.
pub(crate) fn ready() -> anyhow::Result<()> {
    // A child that was just started leads no process group, so this cannot be refused.
    rustix::process::setsid()?;
    std::env::set_current_dir("/")?;
    std::io::stdout().write_all(READY.as_bytes())?;
    std::io::stdout().flush()?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
