//! What `gphash-recover` does to a file, without knowing the types of its keys and values.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Instant;

use crate::error::ParseOptionError;
use crate::layout::{Flags, KeyClass, Metadata};
use crate::pm::{Entry, MapOptions, Mapping, Medium};
use crate::table::Table;
use crate::table::compact::reporting;
use crate::table::read_superblock;
use crate::table::recovery::{Policy, Progress, Recovery};
use crate::{Domain, Error, Result};

/// What a recovery may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// Nothing: it only reads.
    Check,
    /// What an opening does after a crash. Nothing is lost: what is damaged stays as it is, byte for
    /// byte.
    Recover,
    /// That, and throw away what damage has made unusable, so that the rest can be used.
    Salvage,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Repair::Check => "check",
            Repair::Recover => "recover",
            Repair::Salvage => "salvage",
        })
    }
}

impl FromStr for Repair {
    type Err = ParseOptionError;

    /// `check`, `recover` or `salvage`.
    fn from_str(text: &str) -> std::result::Result<Self, ParseOptionError> {
        match text {
            "check" => Ok(Repair::Check),
            "recover" => Ok(Repair::Recover),
            "salvage" => Ok(Repair::Salvage),
            _ => {
                let expected = "check, recover or salvage";
                Err(ParseOptionError::new("repair", text, expected))
            }
        }
    }
}

/// What became of a file, or what would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportState {
    /// It was cleanly closed and is whole.
    Clean,
    /// It was recovered and cleanly closed.
    Recovered,
    /// It was not cleanly closed; opening it will recover it.
    NeedsRecovery,
    /// It holds what no crash leaves behind.
    Damaged,
}

/// What the file of an index is, and what a recovery found in it and repaired.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// The state of the file; after a recovery, the state before it if that was clean or damaged.
    pub state: ReportState,
    /// Version of the file's format.
    pub format_version: u32,
    /// Bytes of a key; 0 for variable length.
    pub key_size: u64,
    /// Bytes of a value; 0 for variable length.
    pub value_size: u64,
    /// What the file says of itself; no key kind, columns and bytes of the user if that is damaged.
    pub metadata: Metadata,
    /// Whether values have checksums, which were then compared: those of variable length always have.
    pub checksums: bool,
    /// Domain in which the file was opened.
    pub domain: Domain,
    /// Live levels.
    pub levels: u32,
    /// Slots of all live levels.
    pub capacity: u64,
    /// Items divided by slots.
    pub load_factor: f64,
    /// What was found and repaired, or what would be.
    pub recovery: Recovery,
    /// Whether [`recover`] has written to the file, and left it whole.
    pub was_repaired: bool,
}

/// Recovers the file at `path`, on the CPU, as far as `repair` allows: scans every slot, repairs what a crash
/// cut short, finishes a resize, and closes the file cleanly. With [`Repair::Check`] it only reads, and
/// so it does with [`Repair::Recover`] if the file is damaged: the file and its journal stay as they are, byte
/// for byte. [`Repair::Salvage`] drops the items that damage has made unusable, and the report names them.
///
/// Where the journal that the file needs is missing or damaged, a salvage goes on without it, and
/// the report says so. Each page may then be of the last checkpoint or of the one before. Items may
/// have an older value, or be missing without being counted. A value of fixed size without a
/// [checksum](crate::Options::checksums) may be another key's. A damaged journal is kept beside the
/// file, with `.damaged` behind its name.
///
/// `progress` is called now and then, from any thread.
///
/// # Examples
/// ```
/// use gphash::{Index, Options, Repair, ReportState, recover};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("index");
/// # Index::<u64, u64>::create(&path, &Options::new())?.close()?;
/// let report = recover(&path, Repair::Check, &|_| {})?;
/// assert_eq!((report.state, report.recovery.items), (ReportState::Clean, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`Index::open`](crate::Index::open), but damage of single slots is reported, not an error.
pub fn recover(
    path: impl AsRef<Path>,
    repair: Repair,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report> {
    let entry = Entry::at(path.as_ref(), None)?;
    recover_with(&entry, repair, progress, &MapOptions::default())
}

/// Gives back the room that the file of an index at `path` does not need, on the CPU: [recovers](recover) it if it was
/// not cleanly closed, moves records together, and gives what is free to the file system. See
/// [`Index::compact`](crate::Index::compact). `progress` is called now and then, from any thread.
///
/// # Examples
/// ```
/// use std::os::unix::fs::MetadataExt;
///
/// use gphash::{Index, Options, compact};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("index");
/// # Index::<u64, u64>::create(&path, &Options::new().capacity(1_000_000))?.close()?;
/// let blocks = || std::fs::metadata(&path).map(|metadata| metadata.blocks());
/// let before = blocks()?;
/// compact(&path, &|_| {})?;
/// assert!(blocks()? < before);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`Index::open`](crate::Index::open); a damaged file is left as it is.
pub fn compact(path: impl AsRef<Path>, progress: &(dyn Fn(Progress) + Sync)) -> Result<()> {
    let entry = Entry::at(path.as_ref(), None)?;
    let medium = Mapping::open_at(&entry, &MapOptions::default())?;
    let superblock = read_superblock(&medium, entry.path())?;
    let policy = Policy {
        progress,
        ..Policy::INDEX
    };
    let (table, _) = Table::open(medium, superblock, entry.path(), policy)?;
    table.compact(&reporting(progress));
    table.close()
}

/// As [`recover`], with the file mapped as `options` say.
pub(crate) fn recover_with(
    entry: &Entry,
    repair: Repair,
    progress: &(dyn Fn(Progress) + Sync),
    options: &MapOptions,
) -> Result<Report> {
    let started = Instant::now();
    let options = &MapOptions {
        ignore_lost_journal: options.ignore_lost_journal || repair == Repair::Salvage,
        ..options.clone()
    };
    if repair == Repair::Recover {
        let checked = recover_with(entry, Repair::Check, progress, options)?;
        if checked.state != ReportState::NeedsRecovery {
            return Ok(checked);
        }
    }
    if repair == Repair::Salvage
        && Mapping::open_read_only_at(entry, options)?
            .lost_journal()
            .is_some()
    {
        // What is damaged beyond that is refused before the journal is put aside.
        recover_with(entry, Repair::Check, progress, options)?;
    }
    let check = repair == Repair::Check;
    let medium = if check {
        Mapping::open_read_only_at(entry, options)?
    } else {
        Mapping::open_at(entry, options)?
    };
    let path = entry.path();
    let mut superblock = read_superblock(&medium, path)?;
    let lost_journal = medium.lost_journal().map(without_journal);
    if lost_journal.is_some() {
        // Its counts may be of another checkpoint than the pages.
        superblock.set_flag(Flags::CLEAN, false);
    }
    let policy = Policy {
        always_scan: true,
        // A check changes its own memory alone.
        repair_damage: repair != Repair::Recover,
        is_torn: lost_journal.is_some(),
        progress,
    };
    let (table, mut recovery) = Table::open(medium, superblock, path, policy)?;
    recovery.damage.splice(..0, lost_journal);
    if !check && let Err(error) = table.finish_draining_with(progress) {
        // As at a close: the file is repaired, and whoever opens it goes on with the resize.
        tracing::warn!(%error, "the resize is left as it is");
    }
    // Its journal is not home yet, or was not.
    let is_pending = repair == Repair::Recover || superblock.journal_id != 0;
    let levels = table.levels.live();
    let capacity = table.slots();
    let mut report = Report {
        state: if !recovery.damage.is_empty() {
            ReportState::Damaged
        } else if recovery.clean && !is_pending {
            ReportState::Clean
        } else if check {
            ReportState::NeedsRecovery
        } else {
            ReportState::Recovered
        },
        format_version: superblock.version,
        key_size: table.shape.key_size,
        value_size: table.shape.value_size,
        metadata: table.metadata(),
        checksums: table.shape.checksums || table.shape.key_class() == KeyClass::Variable,
        domain: table.medium.domain(),
        levels: levels.top - levels.bottom + 1,
        capacity,
        load_factor: table.len() as f64 / capacity as f64,
        recovery,
        was_repaired: !check,
    };
    if !check {
        table.close()?;
    }
    report.recovery.elapsed = started.elapsed();
    Ok(report)
}

/// What it means that a file is used without its journal.
fn without_journal(error: &Error) -> String {
    let found = match error {
        Error::JournalMissing { found, .. } => format!("it {found}"),
        Error::Damaged { found, .. } | Error::Foreign { found, .. } => found.clone(),
        error => error.to_string(),
    };
    format!(
        "journal: {found}. It was not used: each page may be of the last checkpoint or of the one before, \
         and items that are not named may be lost or have older values, too"
    )
}

#[cfg(all(test, not(loom)))]
mod tests;
