//! The report for a program.

use std::path::Path;

use gphash::store::FileReport;
use gphash::{Column, Domain, Error, KeyKind};
use serde::Serialize;

use super::finding::{Finding, Outcome, hexadecimal, word};

/// What `--json` prints for a file or a store, of which the statistics are those of the index. What is
/// unknown of a file that cannot be read is null.
#[derive(Serialize)]
pub(crate) struct Object<'f> {
    file: String,
    state: &'static str,
    format_version: Option<u32>,
    key_size: Option<u64>,
    value_size: Option<u64>,
    checksums: Option<bool>,
    key_kind: Option<KeyKind>,
    columns: Option<&'f [Column]>,
    version: Option<u64>,
    user_bytes: Option<usize>,
    domain: Option<Domain>,
    levels: Option<u32>,
    items: Option<u64>,
    capacity: Option<u64>,
    load_factor: Option<f64>,
    slots_cleared: Option<u64>,
    duplicates_removed: Option<u64>,
    records_reclaimed: Option<u64>,
    resize_resumed: Option<bool>,
    items_lost: Option<u64>,
    keys_lost: Option<Vec<String>>,
    elapsed_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_freed: Option<u64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    store: Option<Store<'f>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What is said of stores alone.
#[derive(Serialize)]
struct Store<'f> {
    log_records: u64,
    items_reverted: u64,
    keys_reverted: Vec<String>,
    files: &'f [FileReport],
}

impl<'f> Object<'f> {
    pub(crate) fn new(path: &Path, outcome: &'f Outcome) -> Self {
        let finding = outcome.finding.as_ref().ok();
        let index = finding.and_then(Finding::index);
        let recovery = index.map(|report| &report.recovery);
        // That of a store says nothing.
        let fixed = index.filter(|report| report.key_size != 0);
        let metadata = fixed.map(|report| &report.metadata);
        let (state, error) = match &outcome.finding {
            Ok(finding) => {
                let mut errors = finding.damage();
                errors.extend(outcome.trouble.clone());
                let error = (!errors.is_empty()).then(|| errors.join("; "));
                (word(finding.state()), error)
            }
            Err(
                error @ (Error::Damaged { .. }
                | Error::DamagedLog { .. }
                | Error::JournalMissing { .. }
                | Error::Missing { .. }
                | Error::Truncated { .. }),
            ) => ("damaged", Some(error.to_string())),
            Err(error) => ("error", Some(error.to_string())),
        };
        let store = match finding {
            Some(Finding::Store(report)) => Some(Store {
                log_records: report.log_records,
                items_reverted: report.items_reverted,
                keys_reverted: hexadecimal(&report.keys_reverted),
                files: &report.files,
            }),
            _ => None,
        };
        Self {
            file: path.to_string_lossy().into_owned(),
            state,
            format_version: index.map(|report| report.format_version),
            key_size: index.map(|report| report.key_size),
            value_size: index.map(|report| report.value_size),
            checksums: index.map(|report| report.checksums),
            key_kind: metadata.map(|metadata| metadata.key_kind),
            columns: metadata.map(|metadata| metadata.columns.as_slice()),
            version: metadata.map(|metadata| metadata.version),
            user_bytes: metadata.map(|metadata| metadata.user.len()),
            domain: index.map(|report| report.domain),
            levels: index.map(|report| report.levels),
            items: recovery.map(|recovery| recovery.items),
            capacity: index.map(|report| report.capacity),
            load_factor: index.map(|report| report.load_factor),
            slots_cleared: recovery.map(|recovery| recovery.slots_cleared),
            duplicates_removed: recovery.map(|recovery| recovery.duplicates_removed),
            records_reclaimed: recovery.map(|recovery| recovery.records_reclaimed),
            resize_resumed: recovery.map(|recovery| recovery.resize_resumed),
            items_lost: finding.map(|finding| finding.lost().0),
            keys_lost: finding.map(|finding| hexadecimal(finding.lost().1)),
            elapsed_ms: finding.map(Finding::milliseconds),
            bytes_freed: outcome.bytes_freed,
            store,
            error,
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers always have a JSON form")
    }
}
