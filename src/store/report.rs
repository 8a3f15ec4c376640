//! What a look at a store has found, file by file.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::wal::survey::Surveyed;
use crate::spill::Checked;
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
    /// Items of the index, records of the log that a recovery carries out, or entries of a sorted
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
    /// Records of the log that a recovery carries out, or has carried out.
    pub log_records: u64,
    /// The files: manifest, index, the segments of the log in their order, and the sorted files.
    pub files: Vec<FileReport>,
    /// Figures of the index's file, from [`recover`](super::recover) alone.
    pub index: Option<Report>,
    /// What is wrong with the ordered view, one line each, from
    /// [`verify`](super::Store::verify) alone. It is made anew by the next opening.
    pub view_damage: Vec<String>,
    /// Whether [`recover`](super::recover) has left a store that is whole.
    pub was_mended: bool,
    /// How long it took.
    pub elapsed: Duration,
}

impl FileReport {
    /// A file in which nothing is wrong so far.
    pub(super) fn new(root: &Path, path: &Path, kind: StoreFile) -> Self {
        let name = path.strip_prefix(root).unwrap_or(path);
        Self {
            name: name.to_string_lossy().into_owned(),
            kind,
            state: ReportState::Clean,
            bytes: std::fs::metadata(path).map_or(0, |file| file.len()),
            checked: 0,
            damage: Vec::new(),
        }
    }

    /// Notes damage.
    pub(super) fn complain(&mut self, damage: impl ToString) {
        self.state = ReportState::Damaged;
        self.damage.push(damage.to_string());
    }

    /// A segment of a log; `with_records` is the state of one that has records to carry out.
    pub(super) fn segment(root: &Path, found: &Surveyed, with_records: ReportState) -> Self {
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
    pub(super) fn sst(root: &Path, path: &Path, checked: &Result<Checked>) -> Self {
        let mut file = Self::new(root, path, StoreFile::Sst);
        match checked {
            Ok(checked) => file.checked = checked.entries,
            Err(error) => file.complain(error),
        }
        file
    }
}

impl StoreReport {
    pub(super) fn new(files: Vec<FileReport>) -> Self {
        let log = files.iter().filter(|file| file.kind == StoreFile::Log);
        Self {
            state: ReportState::Clean,
            items: 0,
            log_records: log.map(|file| file.checked).sum(),
            files,
            index: None,
            view_damage: Vec::new(),
            was_mended: false,
            elapsed: Duration::ZERO,
        }
    }

    /// Gives the store the worst state of its parts.
    pub(super) fn judge(&mut self) {
        let worst = self.files.iter().map(|file| file.state).max();
        self.state = match self.view_damage.is_empty() {
            true => worst.unwrap_or(ReportState::Clean),
            false => ReportState::Damaged,
        };
    }
}
