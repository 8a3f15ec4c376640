//! The one error type of the crate.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gphash_layout::ImpossibleShape;
use rustix::fs::Access;
use rustix::io::Errno;

/// Everything that can go wrong, with what was found and what was expected.
///
/// What an error has left undone, each verb and variant says. A batch of an [`Index`](crate::Index) may have been done
/// in part, each operation whole. A batch of a store is done whole or not at all.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option, or a combination of options, that cannot be.
    #[error("invalid option {option}: {found}; expected {expected}")]
    InvalidOption {
        /// Name of the option as in [`Options`](crate::Options), or of an argument.
        option: &'static str,
        /// What was given.
        found: String,
        /// What would have been accepted.
        expected: String,
    },

    /// Two slices of one batch differ in length. Nothing was done.
    #[error("a batch of {keys} keys came with {values} values; give one value for each key")]
    LengthMismatch {
        /// Length of the slice of keys.
        keys: usize,
        /// Length of the other slice.
        values: usize,
    },

    /// Columns that cannot be: offsets that go backwards or outside of the bytes, or another number of kinds
    /// than of keys. Nothing was done.
    #[error("invalid columns: {what} is {found}; expected {expected}")]
    InvalidColumns {
        /// What is wrong: `"offset 3"`, for example.
        what: String,
        /// What was given.
        found: String,
        /// What would have been accepted.
        expected: String,
    },

    /// The file was made for keys or values of another size.
    #[error("{}: the file holds {what}s of {found} bytes, the program asks for {expected}", path.display())]
    SizeMismatch {
        /// The file.
        path: PathBuf,
        /// `"key"` or `"value"`.
        what: &'static str,
        /// Size in the file, in bytes.
        found: u64,
        /// Size of the program's type, in bytes.
        expected: u64,
    },

    /// The file is of the other kind: fixed sizes, or variable length.
    #[error("{}: the file holds {found}; expected {expected}", path.display())]
    WrongKind {
        /// The file.
        path: PathBuf,
        /// What its keys and values are.
        found: &'static str,
        /// What the program asks for.
        expected: &'static str,
    },

    /// `create` was given a path that exists.
    #[error("{}: exists already; open the index, or choose another path", path.display())]
    AlreadyExists {
        /// The path.
        path: PathBuf,
    },

    /// The path leads to something that is not a regular file.
    #[error("{}: is a {found}, not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What stands there: `"directory"`, `"socket"`, …
        found: &'static str,
    },

    /// Not a gphash file.
    #[error("{}: not a gphash file: {found}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What stands where the magic should be.
        found: String,
    },

    /// A file of a later format than this build reads.
    #[error("{}: format version {found}; this build reads no later one than {supported}", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Version in the file.
        found: u32,
        /// The latest version that this build reads.
        supported: u32,
    },

    /// A file of an earlier format than this build reads.
    #[error("{}: format version {found}; this build reads version {supported} alone: write its items into a new file with the build that made it", path.display())]
    OlderFormat {
        /// The file.
        path: PathBuf,
        /// Version in the file.
        found: u32,
        /// The version that this build reads.
        supported: u32,
    },

    /// The file has something in it that a reader must know of, and this build does not. The file is
    /// untouched.
    #[error("{}: needs features that this build does not know: {found}; open it with the build that has used them, or a later one", path.display())]
    UnknownFeatures {
        /// The file.
        path: PathBuf,
        /// Names of the features, as far as this build has names for them, or their bits.
        found: String,
    },

    /// The file is shorter than its superblock says, or what else speaks of it.
    #[error("{}: the file has {found} bytes; {expected} were expected: it was truncated", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Length of the file in bytes.
        found: u64,
        /// Length that is stated, in bytes.
        expected: u64,
    },

    /// The file holds something that no crash can leave behind.
    #[error("{}: damaged: {what} at byte {at}: {found}; `gphash-recover --salvage` may save the rest", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which structure is damaged.
        what: &'static str,
        /// Byte offset of that structure in the file.
        at: u64,
        /// What was found there and what was expected.
        found: String,
    },

    /// A checkpoint may be half way home, and the journal that its superblock names is not beside
    /// the file. One of the two was renamed, moved or copied alone, or the file has another name.
    /// With that journal the file is whole. The file is untouched.
    #[error("{}: a checkpoint may be half done, and its journal {} {found}; put the journal back beside the file, under the file's name with .journal behind it, or let `gphash-recover --salvage` go on without it", path.display(), journal.display())]
    JournalMissing {
        /// The file.
        path: PathBuf,
        /// Where its journal should be.
        journal: PathBuf,
        /// What is wrong with it: `"is not there"`, …
        found: &'static str,
    },

    /// Another process, or another handle of this one, has the file open, and did not close it
    /// within half a second. So long a driver may hold the file of a process that has died.
    #[error("{}: in use by another handle or process; close that one first", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },

    /// A verb was called, in a child of the process that has opened the file, on a handle from before the fork. Nothing was
    /// done: the file, and the threads that serve it, are the parent's.
    #[error("{}: opened by the process that forked this one; open it anew in the child, once the parent has closed it", path.display())]
    Forked {
        /// The file.
        path: PathBuf,
    },

    /// The file, or its directory, may not be written. One that may not even be read is [`Io`](Self::Io).
    #[error("{}: may not be written: {source}", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },

    /// The disk has no room for the file to grow. The table goes on working with what it has.
    #[error("{}: no room {}: {source}; free some on its disk", path.display(), room_for(*needed))]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// How many bytes more are needed; 0 where the operating system alone knows, as of a directory that
        /// has to take a further name.
        needed: u64,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },

    /// The file cannot have the persistence domain that was asked for.
    #[error("{}: the domain {wanted} is not to be had here: {reason}", path.display())]
    Domain {
        /// The file.
        path: PathBuf,
        /// The domain that was asked for.
        wanted: crate::Domain,
        /// Why not, and what to do.
        reason: String,
    },

    /// Any other answer of the operating system.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done: `"open"`, `"map"`, `"write the journal"`, …
        action: &'static str,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },

    /// The table would have to grow past a limit: of the format, of the addresses that were reserved when the file was opened
    /// (open it anew), or because keys all go to the same buckets. Some operations of a batch of the index may have been done,
    /// each whole. Or a batch of a store has more requests than its log can number: nothing of that was done.
    #[error("{}: {what} would have to be {needed}; the limit is {limit}", path.display())]
    Limit {
        /// The file.
        path: PathBuf,
        /// Which limit.
        what: &'static str,
        /// What would be needed.
        needed: u64,
        /// The limit.
        limit: u64,
    },

    /// A key, a value or the user's metadata is longer than the limit. Nothing was done.
    #[error("a {what} of {found} bytes; the limit is {limit}")]
    TooLong {
        /// `"key"`, `"value"`, `"expected value"`, `"operand"`, `"merged value"` or `"user metadata"`.
        what: &'static str,
        /// Its length in bytes.
        found: u64,
        /// The limit in bytes.
        limit: u64,
    },

    /// A directory that is not a store's: a new store would not be alone in it, or there is nothing to recover.
    #[error("{}: not a gphash store: it holds {found}", path.display())]
    ForeignDirectory {
        /// The directory.
        path: PathBuf,
        /// What was found in it.
        found: String,
    },

    /// A file of a store is not there.
    #[error("{}: missing; {advice}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What to do.
        advice: &'static str,
    },

    /// An index or a store was made with another value of an option that cannot change. Its items are as they were.
    #[error("{}: made with {option} = {found}, the program asks for {expected}", path.display())]
    OptionMismatch {
        /// The file, or the store's manifest.
        path: PathBuf,
        /// Name of the option as in [`Options`](crate::Options) or
        /// [`StoreOptions`](crate::store::StoreOptions).
        option: &'static str,
        /// What it was made with.
        found: String,
        /// What the program gave.
        expected: String,
    },

    /// A segment of the write-ahead log holds something that no crash can leave behind.
    #[error("{}: damaged at byte {at}: {found}; `StoreOptions::salvage(true)` keeps what lies before it", path.display())]
    DamagedLog {
        /// The segment.
        path: PathBuf,
        /// Where the damage begins, in bytes.
        at: u64,
        /// What was found there and what was expected.
        found: String,
    },

    /// The merge operator failed or panicked. The request did nothing.
    #[error("merge operator {operator}: {reason}")]
    Merge {
        /// Its name.
        operator: String,
        /// What it said.
        reason: String,
    },

    /// Something that a transaction has read was changed before it was committed. Nothing of it
    /// was done; run it again.
    #[error("the transaction read what another one has changed; run it again")]
    Conflict,

    /// So many bytes of asynchronous requests wait that this one is refused. Nothing was done; call again when some are
    /// answered.
    #[error(
        "{waiting} bytes of asynchronous requests wait; at most {limit} may before another one"
    )]
    QueueFull {
        /// Bytes that wait.
        waiting: u64,
        /// Bytes from which on others are refused.
        limit: u64,
    },

    /// A callback or a merge operator has called what would wait for itself.
    #[error("{caller} cannot {action}: it would wait for itself; {advice}")]
    Reentrant {
        /// `"a callback"` or `"a merge operator"`.
        caller: &'static str,
        /// What it has called for.
        action: &'static str,
        /// What to do.
        advice: &'static str,
    },

    /// A change has panicked, so that nobody knows how much of it was made. Reads go on; changes and
    /// checkpoints are refused. What was answered is in the log: the next opening replays it. The change itself may be, too.
    #[error("{}: a change panicked: {found}; close the store and open it again", path.display())]
    Broken {
        /// The store's directory.
        path: PathBuf,
        /// The words of the panic.
        found: String,
    },

    /// The store has no ordered view: it was opened with
    /// [`ordered(false)`](crate::store::StoreOptions::ordered).
    #[error("ranges need the ordered view; open the store with ordered(true)")]
    Unordered,

    /// The GPU is absent, too old, out of memory, or refused the file.
    #[error("GPU: {what}: {found}; {expected}")]
    Gpu {
        /// What was being done.
        what: &'static str,
        /// What the driver answered.
        found: String,
        /// What is needed, or what to do.
        expected: String,
    },
}

#[cfg(feature = "cuda")]
#[doc(hidden)]
impl From<crate::gpu::error::Error> for Error {
    fn from(error: crate::gpu::error::Error) -> Self {
        Self::Gpu {
            what: error.what,
            found: error.found,
            expected: error.expected,
        }
    }
}

/// `Result` with the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What there is no room for.
fn room_for(needed: u64) -> String {
    match needed {
        0 => "on the disk".into(),
        1 => "for one more byte".into(),
        needed => format!("for {needed} more bytes"),
    }
}

impl Error {
    /// Says of which option no table can be made.
    pub(crate) fn of_shape(shape: ImpossibleShape) -> Self {
        Self::InvalidOption {
            option: shape.option,
            found: shape.found,
            expected: shape.expected.into(),
        }
    }

    /// Wraps an answer of the operating system about `path`, naming what was being done.
    /// Read-only and full-disk answers get their own variants.
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        let may_be_read =
            |path: &Path| rustix::fs::access(path, Access::READ_OK) != Err(Errno::ACCESS);
        // The directory is opened to read, too.
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or_else(|| Path::new("."));
        Self::of_io(path, action, source, || {
            may_be_read(path) && may_be_read(dir)
        })
    }

    /// As [`io`](Self::io); `may_be_read` says whether the file and its directory may be read.
    fn of_io(
        path: &Path,
        action: &'static str,
        source: io::Error,
        may_be_read: impl FnOnce() -> bool,
    ) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            // That it may not be written either is not what stops a call that reads.
            io::ErrorKind::PermissionDenied if !may_be_read() => Error::Io {
                path,
                action,
                source: source.into(),
            },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                let source = source.into();
                Error::ReadOnly { path, source }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace {
                path,
                needed: 0,
                source: source.into(),
            },
            _ => Error::Io {
                path,
                action,
                source: source.into(),
            },
        }
    }

    /// Whether the operating system has refused a call. That says nothing about what the file holds.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::ReadOnly { .. } | Self::NoSpace { .. } | Self::Io { .. }
        )
    }

    /// Whether a file is damaged, or gone, or the disk cannot read it: to try again soon is of no use.
    pub(crate) fn is_damage_of_disk(&self) -> bool {
        match self {
            Self::Io { source, .. } => matches!(
                source.raw_os_error(),
                // What disks and file systems say of sectors and blocks.
                Some(libc::EIO | libc::ENOENT | libc::EUCLEAN | libc::EBADMSG | libc::ENODATA)
            ),
            error => !error.is_no_damage(),
        }
    }

    /// Whether it says of no damage: a call was refused, or another build knows the format.
    pub(crate) fn is_no_damage(&self) -> bool {
        self.is_refusal()
            || matches!(
                self,
                Self::NewerFormat { .. } | Self::OlderFormat { .. } | Self::UnknownFeatures { .. }
            )
    }
}

#[cfg(test)]
mod tests;

/// A text that names no value of an option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{option} {found:?}; expected {expected}")]
pub struct ParseOptionError {
    option: &'static str,
    found: String,
    expected: &'static str,
}

impl ParseOptionError {
    pub(crate) fn new(option: &'static str, found: &str, expected: &'static str) -> Self {
        Self {
            option,
            found: found.into(),
            expected,
        }
    }
}
