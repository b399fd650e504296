//! The command line: what can be asked, checked as far as that needs nothing but the words themselves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand, ValueEnum};
use rootsfs::authorize::{Hidden, Links, Op, Policy};
use rootsfs::record::Level;
use rootsfs::roots::{AuthorityPolicy, JudgeOptions};

use crate::inputs;

/// Turns a list of roots into a place: a mounted view of exactly the active roots.
///
/// Without a command: mounts a view of the current directory and says what to try.
#[derive(Debug, Parser)]
#[command(name = "rootsfs", version, max_term_width = 100)]
#[command(after_help = "Example: rootsfs mount --root ~/src/app --root ~/src/docs /tmp/view")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount a view of the given roots
    #[command(after_help = "Example: rootsfs mount --root ~/src/app --root ~/src/docs=papers --detach /tmp/view")]
    Mount(MountArgs),
    /// Serve MCP on stdin and stdout; the client's roots become the view
    #[command(after_help = "Example: rootsfs mcp --mountpoint /tmp/view")]
    Mcp(McpArgs),
    /// List or change the roots of a view
    #[command(after_help = "Example: rootsfs roots /tmp/view remove docs")]
    Roots(RootsArgs),
    /// Show all views of this user, or one
    #[command(after_help = "Example: rootsfs status /tmp/view --json")]
    Status {
        /// The view; without it, all views
        mountpoint: Option<PathBuf>,
        /// One JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show the boundary record of a view
    #[command(after_help = "Example: rootsfs log /tmp/view --follow --denied")]
    Log(LogArgs),
    /// Say whether an operation would be allowed, and why not (exit 0 allow, 10 deny)
    #[command(after_help = "Example: rootsfs check /tmp/view app/a.txt --op rename --to docs/a.txt")]
    Check(CheckArgs),
    /// Say what this machine can do, what is missing and how to mend it
    #[command(after_help = "Example: rootsfs doctor")]
    Doctor {
        /// One JSON document
        #[arg(long)]
        json: bool,
    },
    /// Unmount a view, also a busy or a dead one
    #[command(after_help = "Example: rootsfs unmount /tmp/view")]
    Unmount {
        /// The view
        mountpoint: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    #[command(flatten)]
    pub(crate) view: ViewArgs,
    /// Return once the view is live; it goes on in the background
    #[arg(long)]
    pub(crate) detach: bool,
    /// This process is the background one: standard output carries readiness
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
    /// Where: an empty directory, or one that will be made
    pub(crate) mountpoint: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    pub(crate) view: ViewArgs,
    /// Where: an empty directory, or one that will be made [default: a private one]
    #[arg(long, env = "ROOTSFS_MOUNTPOINT", value_name = "DIR")]
    pub(crate) mountpoint: Option<PathBuf>,
    /// Seconds that a root list may take
    #[arg(long, env = "ROOTSFS_REFRESH_TIMEOUT", value_name = "SECS", default_value = "5", value_parser = seconds)]
    pub(crate) refresh_timeout: Duration,
    /// Seconds that a file operation may wait for a root list that the client announced; 0: the old list serves meanwhile
    #[arg(long, env = "ROOTSFS_HOLD", value_name = "SECS", default_value = "1", value_parser = hold)]
    pub(crate) hold: Duration,
}

/// What `mount` and `mcp` have in common.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ViewArgs {
    /// A root: a path or a file:// URI, optionally with the name it gets in the view
    #[arg(long = "root", env = "ROOTSFS_ROOT", value_name = "PATH|URI[=ENTRY]")]
    pub(crate) roots: Vec<std::ffi::OsString>,
    /// A TOML file with the list, followed as it changes: roots = ["~/src/app", { path = "/srv/docs", entry = "docs" }]
    #[arg(long, env = "ROOTSFS_ROOTS_FILE", value_name = "FILE", conflicts_with = "roots")]
    pub(crate) roots_file: Option<PathBuf>,
    /// Nothing in the view may be changed
    #[arg(long, env = "ROOTSFS_READ_ONLY")]
    pub(crate) read_only: bool,
    /// Nothing in this root may be changed
    #[arg(long, env = "ROOTSFS_READ_ONLY_ROOT", value_name = "ROOT|ENTRY")]
    pub(crate) read_only_root: Vec<String>,
    /// Whose list is in force when a client and --root both give one
    #[arg(long, env = "ROOTSFS_AUTHORITY", value_enum, default_value_t)]
    pub(crate) authority: AuthorityArg,
    /// Refuse every root that is not DIR or below it
    #[arg(long, env = "ROOTSFS_WITHIN", value_name = "DIR")]
    pub(crate) within: Option<PathBuf>,
    /// Translate the paths of root URIs, by whole components, longest match first
    #[arg(long, env = "ROOTSFS_MAP", value_name = "HOST=LOCAL", value_parser = path_pair)]
    pub(crate) map: Vec<(PathBuf, PathBuf)>,
    /// Accept an absolute path where a file:// URI belongs
    #[arg(long, env = "ROOTSFS_BARE_PATHS")]
    pub(crate) bare_paths: bool,
    /// Rename and link between roots
    #[arg(long, env = "ROOTSFS_CROSS_ROOT", value_enum, default_value_t)]
    pub(crate) cross_root: CrossRoot,
    /// Enter other file systems mounted below a root
    #[arg(long, env = "ROOTSFS_CROSS_MOUNTS")]
    pub(crate) cross_mounts: bool,
    /// Hide such names in every root: a pattern of gitignore(5), relative to the root (.env, *.pem, secrets/)
    #[arg(long, env = "ROOTSFS_HIDE", value_name = "PATTERN", allow_hyphen_values = true, value_parser = pattern)]
    pub(crate) hide: Vec<String>,
    /// Let links be followed, and read, that lead below this directory of the host, such as /usr
    #[arg(long, env = "ROOTSFS_FOLLOW_OUTSIDE", value_name = "DIR", value_parser = directory)]
    pub(crate) follow_outside: Vec<PathBuf>,
    /// What becomes of symbolic links
    #[arg(long, env = "ROOTSFS_LINKS", value_enum, default_value_t)]
    pub(crate) links: LinksArg,
    /// Let other users in; each operation then runs with the caller's own credentials
    #[arg(long, env = "ROOTSFS_ALLOW_OTHER")]
    pub(crate) allow_other: bool,
    /// What the boundary record holds, besides denials and changes of the list
    #[arg(long, env = "ROOTSFS_RECORD", value_enum, default_value_t)]
    pub(crate) record: RecordLevel,
    /// Where the record goes besides memory: a file that rotates, or - for standard error
    ///
    /// Without it the record is kept in memory for `rootsfs log`, and goes to standard error under journald.
    #[arg(long, env = "ROOTSFS_RECORD_FILE", value_name = "FILE")]
    pub(crate) record_file: Option<PathBuf>,
    /// Refuse (EIO) what the record cannot take, before it is done
    #[arg(long, env = "ROOTSFS_RECORD_STRICT")]
    pub(crate) record_strict: bool,
    /// Exit with 3 when no root is usable, instead of showing an empty view
    #[arg(long, env = "ROOTSFS_REQUIRE_ROOT")]
    pub(crate) require_root: bool,
}

impl ViewArgs {
    /// What the words come to, or why they are none: a sentence for people.
    pub(crate) fn policy(&self) -> anyhow::Result<Policy> {
        let follow_outside =
            self.follow_outside.iter().map(|dir| both_spellings(dir)).collect::<Result<Vec<_>, _>>()?;
        Ok(Policy {
            read_only: self.read_only,
            cross_root: self.cross_root == CrossRoot::Allow,
            cross_mounts: self.cross_mounts,
            hidden: self.hidden()?,
            follow_outside: follow_outside.concat(),
            links: self.links.into(),
        })
    }

    fn hidden(&self) -> anyhow::Result<Hidden> {
        Hidden::new(self.hide.iter().map(String::as_str)).context("--hide")
    }

    pub(crate) fn judge(&self) -> anyhow::Result<JudgeOptions> {
        Ok(JudgeOptions {
            within: self.within.as_deref().map(std::path::absolute).transpose()?,
            map: self.map.clone(),
            bare_paths: self.bare_paths,
            read_only_roots: self.read_only_root.iter().map(|root| inputs::selector(root)).collect::<Result<_, _>>()?,
            hidden: self.hidden()?,
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuthorityArg {
    /// A client that declares roots replaces --root wholly
    #[default]
    Client,
    /// Only --root and `rootsfs roots` count
    CommandLine,
    /// The client's roots are added to --root
    Union,
}

impl From<AuthorityArg> for AuthorityPolicy {
    fn from(argument: AuthorityArg) -> Self {
        match argument {
            AuthorityArg::Client => Self::Client,
            AuthorityArg::CommandLine => Self::CommandLine,
            AuthorityArg::Union => Self::Union,
        }
    }
}

/// A directory as it is spelled, and its own path: links may spell it either way.
fn both_spellings(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    Ok(vec![std::path::absolute(dir)?, dir.canonicalize()?])
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinksArg {
    /// Each is judged by its target
    #[default]
    Judged,
    /// None is followed (without root: none can be read, either)
    Strict,
}

impl From<LinksArg> for Links {
    fn from(argument: LinksArg) -> Self {
        match argument {
            LinksArg::Judged => Self::Judged,
            LinksArg::Strict => Self::Strict,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CrossRoot {
    /// EXDEV, so that mv copies
    #[default]
    Deny,
    /// Where the kernel can do them
    Allow,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordLevel {
    /// Nothing else
    Denials,
    /// Granted changes to the tree
    #[default]
    Changes,
    /// Granted changes and reads
    All,
}

impl From<RecordLevel> for Level {
    fn from(argument: RecordLevel) -> Self {
        match argument {
            RecordLevel::Denials => Self::Denials,
            RecordLevel::Changes => Self::Changes,
            RecordLevel::All => Self::All,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RootsArgs {
    /// The view
    pub(crate) mountpoint: PathBuf,
    /// One JSON document
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: Option<RootsVerb>,
}

/// Each returns only when publishing is done.
#[derive(Debug, Subcommand)]
pub(crate) enum RootsVerb {
    /// Replace the list
    Set {
        /// The new roots; none for an empty view
        #[arg(value_name = "ROOT")]
        roots: Vec<std::ffi::OsString>,
    },
    /// Add to the list
    Add {
        /// Further roots
        #[arg(value_name = "ROOT", required = true)]
        roots: Vec<std::ffi::OsString>,
    },
    /// Take roots away; nothing of them can be read or written afterwards
    Remove {
        /// What goes
        #[arg(value_name = "ROOT|ENTRY", required = true)]
        roots: Vec<String>,
        /// Give up data that programs have written through a map and the kernel has not
        #[arg(long)]
        now: bool,
    },
    /// Judge the list again, asking the client for it where there is one
    Refresh {
        /// Seconds that the client may take
        #[arg(long, value_name = "SECS", default_value = "5", value_parser = seconds)]
        timeout: Duration,
    },
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// The view
    pub(crate) mountpoint: PathBuf,
    /// Go on as events come
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only denials
    #[arg(long)]
    pub(crate) denied: bool,
    /// JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
    /// At most this many past events
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The view
    pub(crate) mountpoint: PathBuf,
    /// Below the mountpoint, relative to it, a backing path, or a file:// URI
    pub(crate) path: String,
    /// lookup, stat, readlink, read, list, write, create, mkdir, mknod, symlink, link, unlink, rmdir, rename, setattr
    /// or setxattr
    #[arg(long, value_name = "OP", default_value = "read")]
    pub(crate) op: Op,
    /// The other end of a rename or link, or the text of a symlink
    #[arg(long, value_name = "PATH")]
    pub(crate) to: Option<String>,
    /// Deny if this is not the generation in force
    #[arg(long, value_name = "N")]
    pub(crate) generation: Option<u64>,
    /// One JSON document in the record's shape
    #[arg(long)]
    pub(crate) json: bool,
}

/// Seconds, with fractions, above 0 and at most an hour.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if seconds > 0.0 && seconds <= 3600.0 {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("not in 0 to 3600".into())
    }
}

/// As [`seconds`], or none at all; bounded, because a caller that waits cannot be killed before it is answered.
fn hold(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(0.0) => Ok(Duration::ZERO),
        Ok(seconds) if seconds > 0.0 && seconds <= 10.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("not a number of seconds in 0 to 10".into()),
    }
}

/// A pattern that hides something.
fn pattern(text: &str) -> Result<String, String> {
    Hidden::new([text]).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// A directory that is there.
fn directory(text: &str) -> Result<PathBuf, String> {
    match std::fs::metadata(text) {
        Ok(metadata) if metadata.is_dir() => Ok(text.into()),
        Ok(_) => Err("it is no directory".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// `HOST=LOCAL`, both absolute.
fn path_pair(text: &str) -> Result<(PathBuf, PathBuf), String> {
    let (host, local) = text.split_once('=').ok_or("not HOST=LOCAL")?;
    if host.starts_with('/') && local.starts_with('/') {
        Ok((host.into(), local.into()))
    } else {
        Err("both paths must be absolute".into())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(words: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(words.split(' '))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        for command in Cli::command().get_subcommands() {
            assert!(command.get_after_help().is_some(), "{} has no example", command.get_name());
        }
    }

    #[test]
    fn words_become_options() {
        let cli = parse("rootsfs mount --root /a --root file:///b=x --map /h=/l --cross-root allow --record all /m");
        let Some(Command::Mount(args)) = cli.unwrap().command else { panic!("not mount") };
        assert_eq!(args.view.roots, ["/a", "file:///b=x"]);
        assert_eq!(args.view.map, [("/h".into(), "/l".into())]);
        assert!(args.view.policy().unwrap().cross_root);
        assert_eq!(Level::from(args.view.record), Level::All);
        assert_eq!(AuthorityPolicy::from(args.view.authority), AuthorityPolicy::Client);
        let Some(Command::Roots(args)) = parse("rootsfs roots /m set").unwrap().command else { panic!("not roots") };
        assert!(matches!(args.verb, Some(RootsVerb::Set { roots }) if roots.is_empty()));
        assert!(parse("rootsfs").unwrap().command.is_none());
    }

    #[test]
    fn wrong_words_are_refused() {
        for words in [
            "rootsfs mount",
            "rootsfs mount --map a=/b /m",
            "rootsfs mcp --refresh-timeout 0",
            "rootsfs mount --hide # /m",
            "rootsfs mount --root /a --roots-file /f /m",
            "rootsfs mount --follow-outside /none /m",
            "rootsfs mount --links none /m",
            "rootsfs mcp --refresh-timeout NaN",
            "rootsfs roots /m add",
            "rootsfs check /m p --op fly",
            "rootsfs frobnicate",
        ] {
            assert_eq!(parse(words).unwrap_err().exit_code(), 2, "{words}");
        }
    }
}
