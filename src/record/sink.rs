use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines that may wait for a slow standard error before further ones are lost (and counted).
const STDERR_QUEUE: usize = 1024;

/// How long dropping the record waits for a slow standard error.
const STDERR_FLUSH: Duration = Duration::from_millis(200);

/// Where the record goes, besides memory.
#[derive(Clone, Debug, Default)]
pub enum Sink {
    /// Nowhere.
    #[default]
    None,
    /// Standard error, a line at a time. A reader that stops reading loses lines; it never stops the view.
    Stderr,
    /// A file of mode 0600 that rotates.
    File(FileSink),
}

/// A file that rotates: `record`, `record.1` (newest old one), `record.2`, …
#[derive(Clone, Debug)]
pub struct FileSink {
    /// The file that is appended to.
    pub path: PathBuf,
    /// Rotate before the file would grow over this many bytes.
    pub max_bytes: u64,
    /// How many old files to keep.
    pub old_files: u32,
}

impl FileSink {
    /// 16 MiB a file, four old ones.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), max_bytes: 16 * 1024 * 1024, old_files: 4 }
    }
}

/// An open [`Sink`].
#[derive(Debug, Default)]
pub(super) enum Output {
    #[default]
    None,
    Stderr(StderrOutput),
    File(FileOutput),
}

impl Output {
    pub(super) fn open(sink: Sink) -> io::Result<Self> {
        Ok(match sink {
            Sink::None => Self::None,
            Sink::Stderr => Self::Stderr(StderrOutput::start()?),
            Sink::File(options) => Self::File(FileOutput::open(options)?),
        })
    }

    pub(super) fn write(&mut self, line: &Arc<str>) -> io::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Stderr(output) => output.write(line),
            Self::File(output) => output.write(line.as_bytes()),
        }
    }
}

#[derive(Debug)]
pub(super) struct FileOutput {
    options: FileSink,
    file: File,
    size: u64,
    /// Only a regular file rotates; a FIFO or a terminal is written to as it is.
    regular: bool,
    /// The last line was cut short by the file system, so the next one must not be glued to it.
    torn: bool,
}

impl FileOutput {
    fn open(options: FileSink) -> io::Result<Self> {
        let (file, size, regular) = open_append(&options.path)?;
        Ok(Self { options, file, size, regular, torn: false })
    }

    /// One `write(2)`, so that lines of several writers to one `O_APPEND` file do not mix.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let length = line.len() as u64;
        // A failed rotation keeps the old file: a record that grows is better than one with a gap.
        let rotated = if self.regular && self.size > 0 && self.size + length > self.options.max_bytes {
            self.rotate()
        } else {
            Ok(())
        };
        let written = if self.torn { self.file.write(&[b"\n", line].concat())? } else { self.file.write(line)? };
        let wanted = line.len() + usize::from(self.torn);
        self.size += written as u64;
        self.torn = written < wanted;
        if self.torn {
            return Err(io::Error::new(io::ErrorKind::WriteZero, "the line was cut short"));
        }
        rotated
    }

    fn rotate(&mut self) -> io::Result<()> {
        let old = |number: u32| {
            let mut name = self.options.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..self.options.old_files).rev() {
            match std::fs::rename(old(number), old(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.options.old_files == 0 {
            std::fs::remove_file(&self.options.path)?;
        } else {
            std::fs::rename(&self.options.path, old(1))?;
        }
        (self.file, self.size, self.regular) = open_append(&self.options.path)?;
        self.torn = false;
        Ok(())
    }
}

fn open_append(path: &Path) -> io::Result<(File, u64, bool)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata.len(), metadata.is_file()))
}

/// A thread of its own writes, because standard error is often a pipe to a program that may stop reading.
#[derive(Debug)]
pub(super) struct StderrOutput {
    queue: Option<SyncSender<Arc<str>>>,
    writer: JoinHandle<()>,
}

impl StderrOutput {
    fn start() -> io::Result<Self> {
        let (queue, lines) = sync_channel::<Arc<str>>(STDERR_QUEUE);
        let writer = std::thread::Builder::new().name("record".into()).spawn(move || {
            for line in lines {
                // Nobody is left to be told that standard error is gone.
                let _ = io::stderr().write_all(line.as_bytes());
            }
        })?;
        Ok(Self { queue: Some(queue), writer })
    }

    fn write(&self, line: &Arc<str>) -> io::Result<()> {
        match &self.queue {
            Some(queue) => queue.try_send(Arc::clone(line)).map_err(|_| io::ErrorKind::WouldBlock.into()),
            None => Ok(()),
        }
    }
}

impl Drop for StderrOutput {
    fn drop(&mut self) {
        self.queue = None;
        let deadline = Instant::now() + STDERR_FLUSH;
        while !self.writer.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
