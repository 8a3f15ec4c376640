//! The report for a person.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use gphash::store::{StoreFile, StoreReport};
use gphash::{Report, ReportState};
use indicatif::HumanCount;

use super::finding::{Finding, hexadecimal};

/// Standard output, until its reader has gone away, and standard error.
pub(crate) struct Output<'o> {
    pub(crate) stdout: &'o mut dyn Write,
    pub(crate) stderr: &'o mut dyn Write,
    pub(crate) closed: bool,
    pub(crate) failed: bool,
}

impl Output<'_> {
    pub(crate) fn line(&mut self, line: &str) {
        if self.closed {
            return;
        }
        let written = writeln!(self.stdout, "{line}").and_then(|()| self.stdout.flush());
        if let Err(error) = written {
            self.closed = true;
            if error.kind() != io::ErrorKind::BrokenPipe {
                self.failed = true;
                self.complain(format_args!("standard output: {error}"));
            }
        }
    }

    pub(crate) fn complain(&mut self, message: impl Display) {
        // Nobody is left to be told when standard error is closed too.
        let _ = writeln!(self.stderr, "gphash-recover: {message}");
    }

    fn row(&mut self, label: &str, value: impl Display) {
        self.line(&format!("  {label:<20} {value}"));
    }

    /// Says what was found, what was repaired, and how many bytes a compaction gave back.
    pub(crate) fn report(&mut self, path: &Path, finding: &Finding, bytes_freed: Option<u64>) {
        self.line(&format!("{}: {}", path.display(), state(finding.state())));
        match finding {
            Finding::File(report) => self.stats(report),
            Finding::Store(report) => self.files(report),
        }
        let (lost, key) = match (finding.was_repaired(), finding) {
            (true, _) => ("items lost", "lost key"),
            (false, Finding::File(_)) => ("items to lose", "key to lose"),
            // The log may have them.
            (false, Finding::Store(_)) => ("damaged index items", "damaged key"),
        };
        self.keys(lost, key, finding.lost());
        self.keys("items reverted", "reverted key", finding.reverted());
        if let Some(bytes) = bytes_freed {
            self.row("bytes freed", HumanCount(bytes));
        }
        self.row("time", format_args!("{:.1} ms", finding.milliseconds()));
        for damage in finding.damage() {
            self.row("damage", damage);
        }
        self.line(match finding {
            Finding::File(report) => advice(report),
            Finding::Store(report) => store_advice(report),
        });
    }

    /// A count of items and the keys that are known, if there are any.
    fn keys(&mut self, what: &str, each: &str, (count, keys): (u64, &[Vec<u8>])) {
        if count == 0 {
            return;
        }
        self.row(what, HumanCount(count));
        let named = hexadecimal(keys);
        let more = count.saturating_sub(named.len() as u64);
        for key in named {
            self.row(each, key);
        }
        if more > 0 {
            self.row(each, format_args!("and {} more", HumanCount(more)));
        }
    }

    fn files(&mut self, report: &StoreReport) {
        self.row("items", HumanCount(report.items));
        self.row("log records", HumanCount(report.log_records));
        for file in &report.files {
            let checked = HumanCount(file.checked);
            let state = state(file.state);
            match file.kind {
                StoreFile::Index => self.row(&file.name, format_args!("{state}, {checked} items")),
                StoreFile::Log => self.row(&file.name, format_args!("{state}, {checked} records")),
                StoreFile::Sst => self.row(&file.name, format_args!("{state}, {checked} entries")),
                _ => self.row(&file.name, state),
            }
        }
    }

    /// What the file says of itself. That of a store says nothing.
    fn metadata(&mut self, report: &Report) {
        if report.key_size == 0 {
            return;
        }
        let metadata = &report.metadata;
        self.row("key kind", metadata.key_kind);
        for column in &metadata.columns {
            self.row("column", column);
        }
        self.row("version", HumanCount(metadata.version));
        self.row("user bytes", HumanCount(metadata.user.len() as u64));
    }

    fn stats(&mut self, report: &Report) {
        let recovery = &report.recovery;
        self.row("format version", report.format_version);
        match report.key_size {
            0 => self.row("key, value", "variable"),
            key => self.row(
                "key, value",
                format_args!("{key} and {} bytes", report.value_size),
            ),
        }
        self.row("checksums", if report.checksums { "yes" } else { "no" });
        self.metadata(report);
        self.row("domain", report.domain);
        self.row("levels", report.levels);
        self.row(
            "items",
            format_args!(
                "{} of {} slots ({:.1} %)",
                HumanCount(recovery.items),
                HumanCount(report.capacity),
                report.load_factor * 100.0
            ),
        );
        let (cleared, removed, reclaimed, resumed) = match report.was_repaired {
            false => (
                "slots to clear",
                "duplicates to remove",
                "records to reclaim",
                "resize to resume",
            ),
            true => (
                "slots cleared",
                "duplicates removed",
                "records reclaimed",
                "resize resumed",
            ),
        };
        if report.state != ReportState::Clean {
            self.row(cleared, HumanCount(recovery.slots_cleared));
            self.row(removed, HumanCount(recovery.duplicates_removed));
            self.row(reclaimed, HumanCount(recovery.records_reclaimed));
            self.row(
                resumed,
                if recovery.resize_resumed {
                    "yes"
                } else {
                    "none"
                },
            );
        }
    }
}

fn state(state: ReportState) -> &'static str {
    match state {
        ReportState::Clean => "clean",
        ReportState::Recovered => "recovered",
        ReportState::NeedsRecovery => "needs recovery",
        ReportState::Damaged => "DAMAGED",
    }
}

fn advice(report: &Report) -> &'static str {
    match report.state {
        ReportState::Clean => "Nothing to do: the file can be opened.",
        ReportState::Recovered => "The file is repaired and can be opened.",
        ReportState::NeedsRecovery => {
            "A program was interrupted; nothing durable is lost. Run gphash-recover without \
             --check, or open the file: opening recovers it too."
        }
        ReportState::Damaged if report.was_repaired => {
            "No crash leaves this behind: suspect the disk, or another program. The items \
             concerned are dropped and the file can be opened; a backup may have them."
        }
        ReportState::Damaged => {
            "No crash leaves this behind: suspect the disk, or another program. The file stays as it \
             is. Restore a backup, or copy the file and run gphash-recover with --salvage: it drops \
             the items concerned and keeps the others."
        }
    }
}

fn store_advice(report: &StoreReport) -> &'static str {
    match report.state {
        ReportState::Clean => "Nothing to do: the store can be opened.",
        ReportState::Recovered => "The store is repaired and can be opened.",
        ReportState::NeedsRecovery => {
            "A program was interrupted; nothing durable is lost. Run gphash-recover without \
             --check, or open the store: opening recovers it too."
        }
        ReportState::Damaged if report.was_repaired => {
            "No crash leaves this behind: suspect the disk, or another program. What is concerned \
             is dropped and the store can be opened; a backup may have it."
        }
        ReportState::Damaged => {
            "No crash leaves this behind: suspect the disk, or another program. The store stays \
             as it is. Restore a backup, or copy the directory and run gphash-recover with \
             --salvage: it throws away what is damaged and what stands in the log behind damage, \
             and older values of those keys may come back."
        }
    }
}
