//! Recovers index files, or looks whether they need it.
//!
//! The report goes to standard output, progress and errors to standard error. A reader that
//! closes the pipe early ends the report, not the recovery.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use gphash::{Domain, Error, Progress, Report, ReportState, recover};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

/// Recover gphash index files after a crash, or look whether they need it.
///
/// Opening an index recovers it as well; this tool does the same without the program that owns
/// the file, and says what it found.
#[derive(Parser)]
#[command(version, after_help = EXIT_STATUS)]
pub(crate) struct Arguments {
    /// Only look, and leave every file as it is
    #[arg(long)]
    pub(crate) check: bool,
    /// Print one JSON object for each file, one on a line, in place of the report
    #[arg(long)]
    pub(crate) json: bool,
    /// Print neither progress nor report, only errors (and the objects of --json)
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Index files
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

const EXIT_STATUS: &str = "\
Exit status:
  with --check  0  every file is clean
                1  a file needs recovery
                2  a file is damaged, or is not an index file
  else          0  every file is clean now
                2  a file is damaged, or could not be recovered
  also 2 when the report could not be written.
  Of several files the worst one decides.";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    ExitCode::from(run(&arguments, &mut io::stdout(), &mut io::stderr()))
}

/// Does what the arguments say; gives the exit status.
pub(crate) fn run(arguments: &Arguments, stdout: &mut dyn Write, stderr: &mut dyn Write) -> u8 {
    let mut output = Output {
        stdout,
        stderr,
        closed: false,
        failed: false,
    };
    let mut status = Status::Clean;
    for (position, file) in arguments.files.iter().enumerate() {
        let outcome = recover_with_progress(file, arguments);
        status = status.max(Status::of(&outcome));
        if arguments.json {
            output.line(&Object::new(file, &outcome).to_json());
        } else {
            match &outcome {
                Err(error) => output.complain(error),
                Ok(_) if arguments.quiet => {}
                Ok(report) => {
                    if position > 0 {
                        output.line("");
                    }
                    output.report(file, report, arguments.check);
                }
            }
            if arguments.quiet
                && let Ok(report) = &outcome
            {
                for damage in named(report) {
                    output.complain(format_args!("{}: damaged: {damage}", file.display()));
                }
            }
        }
    }
    if output.failed {
        status = Status::Failed;
    }
    status as u8
}

/// What the process says when it ends; the greatest one of all files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Status {
    Clean = 0,
    NeedsRecovery = 1,
    Failed = 2,
}

impl Status {
    fn of(outcome: &gphash::Result<Report>) -> Self {
        match outcome.as_ref().map(|report| report.state) {
            Ok(ReportState::Clean | ReportState::Recovered) => Status::Clean,
            Ok(ReportState::NeedsRecovery) => Status::NeedsRecovery,
            Ok(ReportState::Damaged) | Err(_) => Status::Failed,
        }
    }
}

fn recover_with_progress(file: &Path, arguments: &Arguments) -> gphash::Result<Report> {
    let target = if arguments.json || arguments.quiet {
        ProgressDrawTarget::hidden()
    } else {
        // Draws nothing by itself when standard error is no terminal.
        ProgressDrawTarget::stderr()
    };
    let style = ProgressStyle::with_template(
        "{prefix} {msg} [{wide_bar}] {percent:>3} % {human_pos}/{human_len} {eta}",
    )
    .map_or_else(
        |_| ProgressStyle::default_bar(),
        |style| style.progress_chars("=> "),
    );
    let bar = ProgressBar::with_draw_target(Some(0), target)
        .with_style(style)
        .with_prefix(file_name(file));
    let outcome = recover(file, arguments.check, &|Progress { phase, done, total }| {
        if bar.message() != phase {
            bar.reset();
            bar.set_message(phase);
        }
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    outcome
}

fn file_name(file: &Path) -> String {
    file.file_name()
        .unwrap_or(file.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// Standard output, until its reader has gone away, and standard error.
struct Output<'o> {
    stdout: &'o mut dyn Write,
    stderr: &'o mut dyn Write,
    closed: bool,
    failed: bool,
}

impl Output<'_> {
    fn line(&mut self, line: &str) {
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

    fn complain(&mut self, message: impl Display) {
        // Nobody is left to be told when standard error is closed too.
        let _ = writeln!(self.stderr, "gphash-recover: {message}");
    }

    fn row(&mut self, label: &str, value: impl Display) {
        self.line(&format!("  {label:<20} {value}"));
    }

    fn report(&mut self, file: &Path, report: &Report, check: bool) {
        let state = match report.state {
            ReportState::Clean => "clean",
            ReportState::Recovered => "recovered",
            ReportState::NeedsRecovery => "needs recovery",
            ReportState::Damaged => "DAMAGED",
        };
        self.line(&format!("{}: {state}", file.display()));
        self.row("format version", report.format_version);
        match report.key_size {
            0 => self.row("key, value", "variable"),
            key => self.row(
                "key, value",
                format_args!("{key} and {} bytes", report.value_size),
            ),
        }
        self.row("domain", report.domain);
        self.row("levels", report.levels);
        self.row(
            "items",
            format_args!(
                "{} of {} slots ({:.1} %)",
                HumanCount(report.items),
                HumanCount(report.capacity),
                report.load_factor * 100.0
            ),
        );
        let (cleared, removed, reclaimed, resumed) = match report.state {
            ReportState::NeedsRecovery => (
                "slots to clear",
                "duplicates to remove",
                "records to reclaim",
                "resize to resume",
            ),
            _ => (
                "slots cleared",
                "duplicates removed",
                "records reclaimed",
                "resize resumed",
            ),
        };
        if report.state != ReportState::Clean {
            self.row(cleared, HumanCount(report.slots_cleared));
            self.row(removed, HumanCount(report.duplicates_removed));
            self.row(reclaimed, HumanCount(report.records_reclaimed));
            self.row(resumed, if report.resize_resumed { "yes" } else { "none" });
        }
        self.row("time", format_args!("{:.1} ms", milliseconds(report)));
        for damage in named(report) {
            self.row("damage", damage);
        }
        self.line(match report.state {
            ReportState::Clean => "Nothing to do: the file can be opened.",
            ReportState::Recovered => "The file is mended and can be opened.",
            ReportState::NeedsRecovery => {
                "A program was interrupted; nothing durable is lost. Run gphash-recover without \
                 --check, or open the file: opening recovers it too."
            }
            ReportState::Damaged if check => {
                "No crash leaves this behind: suspect the disk, or another program. Restore a \
                 backup, or copy the file and run gphash-recover without --check: it drops the \
                 items concerned and keeps the others."
            }
            ReportState::Damaged => {
                "No crash leaves this behind: suspect the disk, or another program. The items \
                 concerned are dropped and the file can be opened; a backup may have them."
            }
        });
    }
}

/// Damage in words: the first of it, and how much more there is.
fn named(report: &Report) -> Vec<String> {
    const NAMED: usize = 20;
    let mut lines: Vec<String> = report.damage.iter().take(NAMED).cloned().collect();
    if report.damage.len() > NAMED {
        lines.push(format!(
            "and {} more",
            HumanCount((report.damage.len() - NAMED) as u64)
        ));
    }
    lines
}

fn milliseconds(report: &Report) -> f64 {
    report.elapsed.as_secs_f64() * 1e3
}

/// What `--json` prints for a file. What is unknown of a file that cannot be read is null.
#[derive(Serialize)]
struct Object {
    file: String,
    state: &'static str,
    format_version: Option<u32>,
    key_size: Option<u64>,
    value_size: Option<u64>,
    domain: Option<Domain>,
    levels: Option<u32>,
    items: Option<u64>,
    capacity: Option<u64>,
    load_factor: Option<f64>,
    slots_cleared: Option<u64>,
    duplicates_removed: Option<u64>,
    records_reclaimed: Option<u64>,
    resize_resumed: Option<bool>,
    elapsed_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Object {
    fn new(file: &Path, outcome: &gphash::Result<Report>) -> Self {
        let report = outcome.as_ref().ok();
        let (state, error) = match outcome {
            Ok(report) => match report.state {
                ReportState::Clean => ("clean", None),
                ReportState::Recovered => ("recovered", None),
                ReportState::NeedsRecovery => ("needs_recovery", None),
                ReportState::Damaged => ("damaged", Some(named(report).join("; "))),
            },
            Err(error @ (Error::Damaged { .. } | Error::Truncated { .. })) => {
                ("damaged", Some(error.to_string()))
            }
            Err(error) => ("error", Some(error.to_string())),
        };
        Self {
            file: file.to_string_lossy().into_owned(),
            state,
            format_version: report.map(|report| report.format_version),
            key_size: report.map(|report| report.key_size),
            value_size: report.map(|report| report.value_size),
            domain: report.map(|report| report.domain),
            levels: report.map(|report| report.levels),
            items: report.map(|report| report.items),
            capacity: report.map(|report| report.capacity),
            load_factor: report.map(|report| report.load_factor),
            slots_cleared: report.map(|report| report.slots_cleared),
            duplicates_removed: report.map(|report| report.duplicates_removed),
            records_reclaimed: report.map(|report| report.records_reclaimed),
            resize_resumed: report.map(|report| report.resize_resumed),
            elapsed_ms: report.map(milliseconds),
            error,
        }
    }

    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers always have a JSON form")
    }
}
