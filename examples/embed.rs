//! Embeds rootsfs as a library: mounts a view, publishes one root, looks at it, unmounts.
//!
//! ```console
//! $ cargo run --example embed -- /tmp/view ~/src/app
//! ```

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rootsfs::authorize::Policy;
use rootsfs::publisher::{Publisher, PublisherOptions, Stage};
use rootsfs::record::Record;
use rootsfs::roots::RootInput;
use rootsfs::view::{View, ViewOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(mountpoint), Some(root)) = (arguments.next(), arguments.next()) else {
        return Err("usage: embed MOUNTPOINT ROOT".into());
    };

    // The record keeps every decision in memory; a view without one cannot be made.
    let record = Arc::new(Record::default());
    let options = ViewOptions {
        mountpoint,
        allow_other: false,
        policy: Policy::default(),
        timeout: Duration::from_secs(1),
        hold: Duration::from_secs(1),
        threads: 2,
    };
    let view = Arc::new(View::mount(&options, Arc::clone(&record))?);

    // Mounted, and empty. The publisher judges lists of roots and installs them in the view, which is its stage.
    let root = root.canonicalize()?;
    let root = RootInput { uri: root.display().to_string(), name: None, entry: None, path_allowed: true };
    let options = PublisherOptions { command_line: vec![root], ..PublisherOptions::default() };
    let publisher = Publisher::start(Arc::clone(&view) as Arc<dyn Stage>, Arc::clone(&record), options);

    let status = publisher.status();
    println!("generation {} at {}:", status.snapshot.generation, view.mountpoint().display());
    for entry in std::fs::read_dir(view.mountpoint())? {
        println!("  {}", entry?.file_name().display());
    }
    for (_, line) in record.recent(10, false) {
        println!("{line}");
    }

    // Dropping the view would do it too; this says when.
    drop(publisher);
    view.unmount();
    Ok(())
}
