//! What `gphash-recover` does to a file, without knowing the types of its keys and values.

use std::path::Path;
use std::time::{Duration, Instant};

use super::open::read_superblock;
use super::recover::{Policy, Progress};
use super::table::Table;
use crate::pm::{MapOptions, Mapping, Medium};
use crate::{Domain, Result};

/// What became of a file, or what would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportState {
    /// It was closed in order and is whole.
    Clean,
    /// It was recovered and closed in order.
    Recovered,
    /// It was not closed in order; opening it will recover it.
    NeedsRecovery,
    /// It holds what no crash leaves behind.
    Damaged,
}

/// What was found in a file, and what was mended.
#[derive(Debug, Clone)]
pub struct Report {
    /// The state of the file; after a recovery, the state before it if that was clean or damaged.
    pub state: ReportState,
    /// Version of the file's format.
    pub format_version: u32,
    /// Bytes of a key; 0 for variable length.
    pub key_size: u64,
    /// Bytes of a value; 0 for variable length.
    pub value_size: u64,
    /// Domain in which the file was opened.
    pub domain: Domain,
    /// Live levels.
    pub levels: u32,
    /// Items.
    pub items: u64,
    /// Slots of all live levels.
    pub capacity: u64,
    /// Items divided by slots.
    pub load_factor: f64,
    /// Slots of operations that a crash cut short.
    pub slots_cleared: u64,
    /// Second copies of items that a resize was moving.
    pub duplicates_removed: u64,
    /// Records that belonged to no item.
    pub records_reclaimed: u64,
    /// Whether a resize was under way.
    pub resize_resumed: bool,
    /// What no crash leaves behind, one line each. A recovery drops the items concerned.
    pub damage: Vec<String>,
    /// How long it took.
    pub elapsed: Duration,
}

/// Recovers the file at `path`, on the CPU: scans every slot, mends what a crash cut short,
/// finishes a resize, drops items that damage has made unusable, and closes the file in order.
/// With `check` it only looks: the file and its journal stay as they are, byte for byte.
///
/// `progress` is called now and then, from any thread.
///
/// # Errors
/// As [`Index::open`](crate::Index::open), but damage of single slots is reported, not an error.
pub fn recover(
    path: impl AsRef<Path>,
    check: bool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report> {
    recover_with(path.as_ref(), check, progress, &MapOptions::default())
}

/// As [`recover`], with the file mapped as `options` say.
pub(crate) fn recover_with(
    path: &Path,
    check: bool,
    progress: &(dyn Fn(Progress) + Sync),
    options: &MapOptions,
) -> Result<Report> {
    let started = Instant::now();
    let medium = if check {
        Mapping::look(path, options)?
    } else {
        Mapping::open(path, options)?
    };
    let superblock = read_superblock(&medium, path)?;
    let policy = Policy {
        always_scan: true,
        mend_damage: true,
        progress,
    };
    let (table, recovery) = Table::open(medium, superblock, path, policy)?;
    if !check && let Err(error) = table.finish_draining_with(progress) {
        // As at a close: the file is mended, and whoever opens it goes on with the resize.
        tracing::warn!(%error, "the resize is left as it is");
    }
    let levels = table.directory.levels();
    let capacity = table.slots();
    let report = Report {
        state: if !recovery.damage.is_empty() {
            ReportState::Damaged
        } else if recovery.clean {
            ReportState::Clean
        } else if check {
            ReportState::NeedsRecovery
        } else {
            ReportState::Recovered
        },
        format_version: superblock.version,
        key_size: table.shape.key_size,
        value_size: table.shape.value_size,
        domain: table.medium.domain(),
        levels: levels.top - levels.bottom + 1,
        items: table.len(),
        capacity,
        load_factor: table.len() as f64 / capacity as f64,
        slots_cleared: recovery.slots_cleared,
        duplicates_removed: recovery.duplicates_removed,
        records_reclaimed: recovery.records_reclaimed,
        resize_resumed: recovery.resize_resumed,
        damage: recovery.damage,
        elapsed: Duration::ZERO,
    };
    if !check {
        table.close()?;
    }
    Ok(Report {
        elapsed: started.elapsed(),
        ..report
    })
}
