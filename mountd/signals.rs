//! SIGINT, SIGTERM and SIGHUP: the first asks for a clean end, the second ends the process at once.

use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Duration;

use rootsfs::sys::mount;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::service::End;

/// How long a clean end may take after a signal before the mount is detached and the process ends regardless.
const GRACE: Duration = Duration::from_millis(2500);

/// Handles the signals from a thread of its own, for the rest of the process's life.
///
/// # Errors
/// The handlers cannot be installed.
pub(crate) fn handle(ended: Sender<End>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            if asked {
                signal_hook::low_level::exit(128 + signal);
            }
            asked = true;
            // Nobody listens any more when the end has begun already.
            let _ = ended.send(End::Signal);
        }
    })?;
    Ok(())
}

/// Bounds what follows: after [`GRACE`] the mount at `mountpoint` is detached and the process ends, whatever it waits for.
pub(crate) fn bound_the_end(mountpoint: PathBuf) {
    let bounded = std::thread::Builder::new().name("end-bound".into()).spawn(move || {
        std::thread::sleep(GRACE);
        if let Err(error) = mount::unmount(&mountpoint) {
            tracing::debug!(%error, "unmounting at the end");
        }
        signal_hook::low_level::exit(0);
    });
    if let Err(error) = bounded {
        tracing::warn!(%error, "the end cannot be bounded in time");
    }
}
