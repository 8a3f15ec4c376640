//! What a check of a store has found, file by file.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::lsm::Checked;
use crate::pm::Dir;
use crate::store::wal::inspect::InspectedSegment;
use crate::{Progress, Report, ReportState, Result};

/// What a file of a store is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StoreFile {
    /// What the store is.
    Manifest,
    /// Its items.
    Index,
    /// A segment of its log.
    Log,
    /// A sorted file of items that have left the index.
    Sst,
}

/// Tells how far one part of the work has come.
pub fn tell(progress: &(dyn Fn(Progress) + Sync), phase: &'static str, done: u64, total: u64) {
    progress(Progress { phase, done, total });
}

/// What was found in a file of a store.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct FileReport {
    /// Its name in the store's directory.
    pub name: String,
    /// What it is for.
    pub kind: StoreFile,
    /// How it is.
    pub state: ReportState,
    /// Bytes of the file.
    pub bytes: u64,
    /// Items of the index, records of the log that a recovery replays, or entries of a sorted
    /// file, whose checksums were checked; 1 for the manifest. An item that moves within the index
    /// meanwhile may count twice.
    pub checked: u64,
    /// What no crash leaves behind, one line each.
    pub damage: Vec<String>,
}

/// What was found in a store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreReport {
    /// The worst state of a file.
    pub state: ReportState,
    /// Items of the index and entries of the sorted files: at least as many as there are keys.
    pub items: u64,
    /// Records of the log that a recovery replays, or has replayed.
    pub log_records: u64,
    /// The files: manifest, index, the segments of the log in their order, and the sorted files.
    pub files: Vec<FileReport>,
    /// What the index's file is, from [`recover`](crate::store::recover) alone.
    pub index: Option<Report>,
    /// What is wrong with the ordered view, one line each, from
    /// [`verify`](crate::store::Store::verify) alone. It is made anew by the next opening.
    pub view_damage: Vec<String>,
    /// Whether [`recover`](crate::store::recover) has left a store that is whole.
    pub was_repaired: bool,
    /// Items that are lost, or that [`Repair::Salvage`](crate::Repair::Salvage) would lose before
    /// it looks for them in the log. These are items of the index whose records are damaged, and, after a salvage,
    /// entries of damaged sorted files, as far as their number is known.
    pub items_lost: u64,
    /// The keys of those of which they are known, in order, up to 65,536.
    pub keys_lost: Vec<Vec<u8>>,
    /// Items that were damaged, of the index or of a sorted file, and now have what another sorted file has of their keys. That
    /// is an older value, the value of a key that was deleted since, or the same one.
    pub items_reverted: u64,
    /// Their keys, in order, up to 65,536.
    pub keys_reverted: Vec<Vec<u8>>,
    /// How long it took.
    pub elapsed: Duration,
}

impl FileReport {
    /// A file in which nothing is wrong so far.
    pub(in crate::store) fn new(root: &Dir, path: &Path, kind: StoreFile) -> Self {
        let name = path.strip_prefix(root.path()).unwrap_or(path);
        let name = name.to_string_lossy().into_owned();
        Self {
            // The path may lead elsewhere by now.
            bytes: root.len_of(&name).unwrap_or(0),
            name,
            kind,
            state: ReportState::Clean,
            checked: 0,
            damage: Vec::new(),
        }
    }

    /// Notes damage.
    pub(in crate::store) fn complain(&mut self, damage: impl ToString) {
        self.state = ReportState::Damaged;
        self.damage.push(damage.to_string());
    }

    /// A segment of a log; `with_records` is the state of one that has records to replay.
    pub(in crate::store) fn segment(
        root: &Dir,
        found: &InspectedSegment,
        with_records: ReportState,
    ) -> Self {
        let mut file = Self::new(root, &found.path, StoreFile::Log);
        file.checked = found.records;
        if found.records > 0 {
            file.state = with_records;
        }
        if let Some(error) = &found.error {
            file.complain(error);
        }
        file
    }

    /// A sorted file.
    pub(in crate::store) fn sst(root: &Dir, path: &Path, checked: &Result<Checked>) -> Self {
        let mut file = Self::new(root, path, StoreFile::Sst);
        match checked {
            Ok(checked) => file.checked = checked.entries,
            Err(error) => file.complain(error),
        }
        file
    }
}

impl StoreReport {
    pub(in crate::store) fn new(files: Vec<FileReport>) -> Self {
        let log = files.iter().filter(|file| file.kind == StoreFile::Log);
        Self {
            state: ReportState::Clean,
            items: 0,
            log_records: log.map(|file| file.checked).sum(),
            files,
            index: None,
            view_damage: Vec::new(),
            was_repaired: false,
            items_lost: 0,
            keys_lost: Vec::new(),
            items_reverted: 0,
            keys_reverted: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    /// A store whose files were checked, `index` among them if it can be read.
    pub(in crate::store) fn of_index(files: Vec<FileReport>, index: Option<Report>) -> Self {
        let spilled = files.iter().filter(|file| file.kind == StoreFile::Sst);
        let spilled: u64 = spilled.map(|file| file.checked).sum();
        let mut report = Self::new(files);
        report.items = spilled + index.as_ref().map_or(0, |index| index.recovery.items);
        if let Some(index) = &index {
            report.items_lost = index.recovery.items_lost;
            report.keys_lost.clone_from(&index.recovery.keys_lost);
        }
        report.index = index;
        report.judge();
        report
    }

    /// Gives the store the worst state of its parts.
    pub(in crate::store) fn judge(&mut self) {
        let worst = self.files.iter().map(|file| file.state).max();
        self.state = match self.view_damage.is_empty() {
            true => worst.unwrap_or(ReportState::Clean),
            false => ReportState::Damaged,
        };
    }
}
