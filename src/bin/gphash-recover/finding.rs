//! What was found at a path.

use std::time::Duration;

use gphash::store::StoreReport;
use gphash::{Report, ReportState};
use indicatif::HumanCount;

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
