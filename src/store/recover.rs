//! What `gphash-recover` does to a store's directory, without the program that owns it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::directory::{self, Directory};
use super::manifest::Manifest;
use super::open::open_in;
use super::options::StoreOptions;
use super::report::{FileReport, StoreFile, StoreReport, tell};
use super::wal::survey::{Extent, survey};
use crate::pm::Folder;
use crate::{Error, Progress, Report, ReportState, Result};

/// What [`recover`] may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// Nothing: it only looks.
    Look,
    /// What an opening of the store does, and drop items that damage has made unusable. A store whose
    /// log is damaged stays as it is.
    Mend,
    /// That, and use a damaged log up to the damage: what stands behind is thrown away.
    Salvage,
}

/// Checks every file of the store in the directory `path`, and as far as `repair` allows mends the
/// index, carries out what the log holds beyond it, and closes the store in order. The merge operator is
/// not needed: the log holds what became of merges.
///
/// With [`Repair::Look`] every file stays as it is, byte for byte, and others may look at the same
/// time. The report says of each file how it was; files that were mended are
/// [`Recovered`](ReportState::Recovered). It reads all of the index and of the log, one segment in memory at
/// a time. `progress` is called now and then, from any thread.
///
/// # Errors
/// [`Error::ForeignDirectory`], [`Error::Missing`] without a manifest, [`Error::InUse`], what is wrong
/// with the manifest, and what the operating system answers while the store is mended. Damage of the
/// other files is reported, not an error.
pub fn recover(
    path: impl AsRef<Path>,
    repair: Repair,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<StoreReport> {
    let started = Instant::now();
    let path = path.as_ref();
    let root = Folder::at(path.to_path_buf(), None);
    let manifest = directory::inspect(&root)?.ok_or_else(|| Error::Missing {
        path: root.join(directory::MANIFEST),
        advice: "a directory without it is not a store",
    })?;
    let report = match repair {
        Repair::Look => {
            let _lock = directory::look(&root)?;
            let files = look_at_log(&root, &manifest, progress)?;
            finish_look(&root, &manifest, files, progress)?
        }
        Repair::Mend | Repair::Salvage => {
            let directory = Directory::open(path, None, None)?;
            mend(&root, directory, repair == Repair::Salvage, progress)?
        }
    };
    Ok(StoreReport {
        elapsed: started.elapsed(),
        ..report
    })
}

/// Looks at the manifest and the log.
fn look_at_log(
    root: &Folder,
    manifest: &Manifest,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<FileReport>> {
    let path = root.path();
    let place = root.join(directory::MANIFEST);
    let mut own = FileReport::new(path, &place, StoreFile::Manifest);
    own.checked = 1;
    if !manifest.complete {
        // A creation was cut short: nothing was ever stored.
        own.state = ReportState::NeedsRecovery;
        return Ok(vec![own]);
    }
    let log = Folder::at(root.join(directory::LOG), None);
    let told = |done, total| tell(progress, "log", done, total);
    let segments = survey(&log, manifest, Extent::Torn, &|_| true, &told)?;
    let segment = |found| FileReport::segment(path, found, ReportState::NeedsRecovery);
    Ok(std::iter::once(own)
        .chain(segments.iter().map(segment))
        .collect())
}

/// Looks at the index, too.
fn finish_look(
    root: &Folder,
    manifest: &Manifest,
    mut files: Vec<FileReport>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<StoreReport> {
    let index = match manifest.complete {
        true => index(root, true, &mut files, progress)?,
        false => None,
    };
    let mut report = StoreReport::new(files);
    report.items = index.as_ref().map_or(0, |index| index.items);
    report.index = index;
    report.judge();
    Ok(report)
}

/// Looks at the index or mends it, and puts its report behind that of the manifest.
fn index(
    root: &Folder,
    check: bool,
    files: &mut Vec<FileReport>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Option<Report>> {
    let path = root.join(directory::INDEX);
    let mut file = FileReport::new(root.path(), &path, StoreFile::Index);
    let outcome = match path.exists() {
        true => crate::recover(&path, check, progress),
        false => Err(directory::missing_index(path)),
    };
    let index = match outcome {
        Ok(index) if index.key_size != 0 => {
            file.complain("an index of keys and values of fixed size");
            None
        }
        Ok(index) => {
            file.state = index.state;
            file.checked = index.items;
            file.damage.clone_from(&index.damage);
            Some(index)
        }
        Err(error @ Error::InUse { .. }) => return Err(error),
        Err(error) => {
            file.complain(error);
            None
        }
    };
    files.insert(1, file);
    Ok(index)
}

/// Mends a store whose directory is open.
fn mend(
    root: &Folder,
    directory: Directory,
    salvage: bool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<StoreReport> {
    let manifest = directory.manifest();
    let mut files = look_at_log(root, &manifest, progress)?;
    let log_is_damaged = files.iter().any(|file| file.state == ReportState::Damaged);
    if log_is_damaged && !salvage {
        return finish_look(root, &manifest, files, progress);
    }
    let mut mended = None;
    if manifest.complete {
        mended = index(root, false, &mut files, progress)?;
        if mended.is_none() {
            let mut report = StoreReport::new(files);
            report.judge();
            return Ok(report);
        }
    }
    let options = StoreOptions::new().salvage(salvage);
    let told = |done, total| tell(progress, "log", done, total);
    let (state, log_records) = open_in(Arc::new(directory), &options, &told)?;
    let stats = state.tiers.table.stats();
    state.close()?;
    for file in &mut files {
        if file.state == ReportState::NeedsRecovery {
            file.state = ReportState::Recovered;
        }
    }
    let mut report = StoreReport::new(files);
    report.items = stats.items;
    report.log_records = log_records;
    report.was_mended = true;
    report.index = mended.map(|index| Report {
        items: stats.items,
        capacity: stats.slots,
        load_factor: stats.load_factor,
        levels: stats.levels,
        ..index
    });
    report.judge();
    Ok(report)
}
