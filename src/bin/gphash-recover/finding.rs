//! What was found at a path.

use std::time::Duration;

use gphash::store::StoreReport;
use gphash::{Report, ReportState};
use indicatif::HumanCount;

/// What became of a file or of a store.
pub(crate) struct Outcome {
    pub(crate) finding: gphash::Result<Finding>,
    /// How many bytes a compaction gave back, if there was one that did not fail.
    pub(crate) bytes_freed: Option<u64>,
    /// Why the compaction failed, or what is wrong after it, or after a recovery.
    pub(crate) trouble: Option<String>,
}

impl Outcome {
    /// Of a recovery, which has found this.
    pub(crate) fn of_recovery(finding: gphash::Result<Finding>) -> Self {
        let state = finding.as_ref().map(Finding::state);
        let is_left = matches!(state, Ok(ReportState::NeedsRecovery));
        Self {
            finding,
            bytes_freed: None,
            trouble: is_left
                .then(|| "not cleanly closed: the disk has no room for a checkpoint".into()),
        }
    }
}

/// The report of a file or of a store.
pub(crate) enum Finding {
    File(Report),
    Store(StoreReport),
}

/// Most lines of damage of one file.
const NAMED: usize = 20;

/// Most keys that are named.
const NAMED_KEYS: usize = 100;

impl Finding {
    pub(crate) fn state(&self) -> ReportState {
        match self {
            Self::File(report) => report.state,
            Self::Store(report) => report.state,
        }
    }

    /// Takes over how a check has found the same after a compaction; gives what is wrong. What the recovery did stays.
    pub(crate) fn update(&mut self, checked: gphash::Result<Finding>) -> Option<String> {
        let checked = match checked {
            Ok(checked) => checked,
            Err(error) => return Some(format!("not checked after the compaction: {error}")),
        };
        let is_clean = checked.state() != ReportState::NeedsRecovery;
        match (self, checked) {
            (Self::File(report), Self::File(checked)) => update_file(report, checked),
            (Self::Store(report), Self::Store(checked)) => {
                match (report.state, checked.state) {
                    (ReportState::NeedsRecovery, ReportState::Clean) => {
                        report.state = ReportState::Recovered;
                    }
                    (_, ReportState::Clean) => {}
                    (_, state) => report.state = state,
                }
                report.items = checked.items;
                report.files = checked.files;
                if let (Some(index), Some(checked)) = (&mut report.index, checked.index) {
                    update_file(index, checked);
                }
            }
            // Something else stands there by now.
            (found, checked) => *found = checked,
        }
        let why = "not cleanly closed after the compaction: the disk has no room for a checkpoint";
        (!is_clean).then(|| why.into())
    }

    /// Whether what was damaged is lost by now, and not only in danger.
    pub(crate) fn was_repaired(&self) -> bool {
        match self {
            Self::File(report) => report.was_repaired,
            Self::Store(report) => report.was_repaired,
        }
    }

    /// What the index's file is.
    pub(crate) fn index(&self) -> Option<&Report> {
        match self {
            Self::File(report) => Some(report),
            Self::Store(report) => report.index.as_ref(),
        }
    }

    /// How many items are lost, and the keys that are known.
    pub(crate) fn lost(&self) -> (u64, &[Vec<u8>]) {
        match self {
            Self::File(Report { recovery, .. }) => (recovery.items_lost, &recovery.keys_lost),
            Self::Store(report) => (report.items_lost, &report.keys_lost),
        }
    }

    /// How many items have an older value again, and their keys.
    pub(crate) fn reverted(&self) -> (u64, &[Vec<u8>]) {
        match self {
            Self::File(_) => (0, &[]),
            Self::Store(report) => (report.items_reverted, &report.keys_reverted),
        }
    }

    pub(crate) fn milliseconds(&self) -> f64 {
        let elapsed: Duration = match self {
            Self::File(report) => report.recovery.elapsed,
            Self::Store(report) => report.elapsed,
        };
        elapsed.as_secs_f64() * 1e3
    }

    /// Damage in words: the first of each file, and how much more there is.
    pub(crate) fn damage(&self) -> Vec<String> {
        match self {
            Self::File(report) => named(&report.recovery.damage),
            Self::Store(report) => report
                .files
                .iter()
                .flat_map(|file| {
                    let of_file = |damage| format!("{}: {damage}", file.name);
                    named(&file.damage).into_iter().map(of_file)
                })
                .collect(),
        }
    }
}

fn update_file(report: &mut Report, checked: Report) {
    if checked.state != ReportState::Clean {
        report.state = checked.state;
    }
    report.levels = checked.levels;
    report.capacity = checked.capacity;
    report.load_factor = checked.load_factor;
    report.recovery.items = checked.recovery.items;
    report.recovery.damage = checked.recovery.damage;
}

/// The first of some keys, in hexadecimal.
pub(crate) fn hexadecimal(keys: &[Vec<u8>]) -> Vec<String> {
    let digits = |key: &Vec<u8>| key.iter().map(|byte| format!("{byte:02x}")).collect();
    keys.iter().take(NAMED_KEYS).map(digits).collect()
}

fn named(damage: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = damage.iter().take(NAMED).cloned().collect();
    if damage.len() > NAMED {
        let more = (damage.len() - NAMED) as u64;
        lines.push(format!("and {} more", HumanCount(more)));
    }
    lines
}

/// A state in words, as `--json` gives it.
pub(crate) fn word(state: ReportState) -> &'static str {
    match state {
        ReportState::Clean => "clean",
        ReportState::Recovered => "recovered",
        ReportState::NeedsRecovery => "needs_recovery",
        ReportState::Damaged => "damaged",
    }
}
