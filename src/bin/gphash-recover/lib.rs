//! Recovers index files and the directories of stores, checks whether they need it, or makes them smaller: what the program
//! `gphash-recover` does, for programs that want to do it themselves.
//!
//! The report goes to standard output, progress and errors to standard error. A reader that
//! closes the pipe early ends the report, not the recovery.

mod finding;
mod object;
mod output;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Parser;
use finding::{Finding, Outcome};
use gphash::{Error, Progress, Repair, ReportState, compact, recover, store};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use object::Object;
use output::Output;

/// The crate whose [`Parser`] reads [`Arguments`].
pub use clap;

/// Recover gphash index files and stores after a crash, or check whether they need it.
///
/// Opening an index or a store recovers it as well; this tool does the same without the program that
/// owns it, and says what it found.
#[derive(Parser)]
#[command(version, after_help = EXIT_STATUS)]
pub struct Arguments {
    /// Only check, and leave every file as it is
    #[arg(long)]
    pub check: bool,
    /// Throw away what is damaged, so that the rest can be used, and say what is lost; go on without a
    /// journal that is missing or damaged
    #[arg(long, conflicts_with = "check")]
    pub salvage: bool,
    /// Give back the room that the files do not need, once they are recovered
    #[arg(long, conflicts_with_all = ["check", "salvage"])]
    pub compact: bool,
    /// Print one JSON object for each file, one on a line, in place of the report
    #[arg(long)]
    pub json: bool,
    /// Print neither progress nor report, only errors (and the objects of --json)
    #[arg(long)]
    pub quiet: bool,
    /// Index files, and directories of stores
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

const EXIT_STATUS: &str = "\
Exit status:
  with --check  0  every file is clean
                1  a file needs recovery
                2  a file is damaged, or could not be checked
  else          0  every file is clean now
                2  a file is damaged and stays as it is, or was damaged before --salvage, or
                   could not be recovered, compacted or cleanly closed
  A file cannot be checked or recovered if it is not there, is neither an index file nor a store,
  is in use, may not be read or written, or has a format that this build does not know. Nor can
  the index of a store be salvaged alone: give the store's directory.
  The status is also 2 when the arguments are wrong, or the report could not be written.
  Of several files the worst one decides.";

impl Arguments {
    /// What may be done.
    fn repair(&self) -> Repair {
        match (self.check, self.salvage) {
            (true, _) => Repair::Check,
            (false, true) => Repair::Salvage,
            (false, false) => Repair::Recover,
        }
    }
}

/// Does what the arguments say; gives the exit status.
pub fn run(arguments: &Arguments, stdout: &mut dyn Write, stderr: &mut dyn Write) -> u8 {
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
            match &outcome.finding {
                Err(error) => output.complain(error),
                Ok(_) if arguments.quiet => {}
                Ok(report) => {
                    if position > 0 {
                        output.line("");
                    }
                    output.report(file, report, outcome.bytes_freed);
                }
            }
            if arguments.quiet
                && let Ok(report) = &outcome.finding
            {
                for damage in report.damage() {
                    output.complain(format_args!("{}: damaged: {damage}", file.display()));
                }
            }
            if let Some(trouble) = &outcome.trouble {
                output.complain(format_args!("{}: {trouble}", file.display()));
            }
        }
    }
    if output.failed {
        status = Status::Failed;
    }
    match status {
        Status::Clean => 0,
        Status::NeedsRecovery => 1,
        Status::Failed => 2,
    }
}

/// What the process says when it ends; the greatest one of all files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Status {
    Clean,
    NeedsRecovery,
    Failed,
}

impl Status {
    fn of(outcome: &Outcome) -> Self {
        if outcome.trouble.is_some() {
            return Status::Failed;
        }
        match outcome.finding.as_ref().map(Finding::state) {
            Ok(ReportState::Clean | ReportState::Recovered) => Status::Clean,
            Ok(ReportState::NeedsRecovery) => Status::NeedsRecovery,
            Ok(ReportState::Damaged) | Err(_) => Status::Failed,
        }
    }
}

fn recover_with_progress(file: &Path, arguments: &Arguments) -> Outcome {
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
    let progress = |Progress { phase, done, total }| {
        if bar.message() != phase {
            bar.reset();
            bar.set_message(phase);
        }
        bar.set_length(total);
        bar.set_position(done);
    };
    let finding = find(file, arguments.repair(), &progress);
    let outcome = match finding {
        Ok(finding) if arguments.compact && finding.state() != ReportState::Damaged => {
            compact_found(file, finding, &progress)
        }
        finding if arguments.check => Outcome {
            finding,
            bytes_freed: None,
            trouble: None,
        },
        finding => Outcome::of_recovery(finding),
    };
    bar.finish_and_clear();
    outcome
}

fn find(
    file: &Path,
    repair: Repair,
    progress: &(dyn Fn(Progress) + Sync),
) -> gphash::Result<Finding> {
    match file.is_dir() {
        true => store::recover(file, repair, progress).map(Finding::Store),
        false if repair == Repair::Salvage && is_of_store(file) => Err(Error::WrongKind {
            path: file.to_path_buf(),
            found: "the index of a store, of which a salvage needs the log",
            expected: "the directory of the store",
        }),
        false => recover(file, repair, progress).map(Finding::File),
    }
}

/// Whether a file is the index of a store. What a salvage drops there may be in the log, which would not be replayed.
fn is_of_store(file: &Path) -> bool {
    let Ok(file) = file.canonicalize() else {
        return false;
    };
    let has = |name: &&str| file.with_file_name(name).exists();
    file.file_name() == Some(OsStr::new("index.gph"))
        && ["MANIFEST", "MANIFEST.2", "wal"].iter().any(has)
}

/// Compacts what was found, which then says how it is afterwards.
fn compact_found(
    file: &Path,
    mut finding: Finding,
    progress: &(dyn Fn(Progress) + Sync),
) -> Outcome {
    let before = bytes_on_disk(file);
    let compacted = match file.is_dir() {
        true => store::compact(file, progress),
        false => compact(file, progress),
    };
    let (bytes_freed, trouble) = match compacted {
        Ok(()) => (
            Some(before.saturating_sub(bytes_on_disk(file))),
            finding.update(find(file, Repair::Check, progress)),
        ),
        Err(error) => (None, Some(format!("not compacted: {error}"))),
    };
    Outcome {
        finding: Ok(finding),
        bytes_freed,
        trouble,
    }
}

/// Bytes that a file has on its disk, or all that are below a directory. They differ from the lengths: a compaction
/// leaves holes.
fn bytes_on_disk(path: &Path) -> u64 {
    const BLOCK_BYTES: u64 = 512;

    let below = |directory| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        // Links are not followed: they may lead in circles.
        let bytes = entries.map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_on_disk(&entry.path()),
            Ok(metadata) => metadata.blocks() * BLOCK_BYTES,
            Err(_) => 0,
        });
        bytes.sum()
    };
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => below(path),
        Ok(metadata) => metadata.blocks() * BLOCK_BYTES,
        Err(_) => 0,
    }
}

fn file_name(file: &Path) -> String {
    file.file_name()
        .unwrap_or(file.as_os_str())
        .to_string_lossy()
        .into_owned()
}
