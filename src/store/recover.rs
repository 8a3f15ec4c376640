//! What `gphash-recover` does to a store's directory, without the program that owns it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rayon::prelude::*;

use super::batch::Sorter;
use super::directory::{self, Directory};
use super::manifest::Manifest;
use super::open::open_in;
use super::options::StoreOptions;
use super::report::{FileReport, StoreFile, StoreReport, tell};
use super::wal::survey::{Extent, survey};
use crate::index::repair;
use crate::pm::{Faults, Folder, MapOptions};
use crate::spill::{Catalog, LevelFile, mend};
use crate::{Engine, Error, Progress, Report, ReportState, Result};

/// What [`recover`] may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// Nothing: it only looks.
    Look,
    /// What an opening of the store does, and drop items of the index that damage has made unusable. A
    /// store whose log or sorted files are damaged stays as it is.
    Mend,
    /// That, and use a damaged log up to the damage, and of damaged sorted files what is whole: what
    /// stands behind, or was lost, is thrown away, and what a deeper sorted file has of a lost key comes
    /// to light again.
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
/// with the manifest, and what the operating system answers, also where a file cannot be read: nothing
/// was given up then, and the call can be repeated. Damage of the other files is reported, not an error.
pub fn recover(
    path: impl AsRef<Path>,
    repair: Repair,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<StoreReport> {
    recover_with(path.as_ref(), repair, progress, None)
}

/// As [`recover`], with `faults` between the store and the operating system.
pub(super) fn recover_with(
    path: &Path,
    repair: Repair,
    progress: &(dyn Fn(Progress) + Sync),
    faults: Option<Arc<dyn Faults>>,
) -> Result<StoreReport> {
    let started = Instant::now();
    let root = Folder::at(path.to_path_buf(), faults.clone());
    let manifest = directory::inspect(&root)?.ok_or_else(|| Error::Missing {
        path: root.join(directory::MANIFEST),
        advice: "a directory without it is not a store",
    })?;
    let report = match repair {
        Repair::Look => {
            let _lock = directory::look(&root)?;
            let mut files = look_at_log(&root, &manifest, progress)?;
            files.extend(look_at_spill(&root, &manifest, progress)?);
            finish_look(&root, &manifest, files, progress)?
        }
        Repair::Mend | Repair::Salvage => {
            let directory = Directory::open(path, None, faults)?;
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
    let log = Folder::at(root.join(directory::LOG), root.faults());
    let told = |done, total| tell(progress, "log", done, total);
    let segments = survey(&log, manifest, Extent::Torn, &|_| true, &told)?;
    let mut errors = segments.iter().filter_map(|found| found.error.as_ref());
    if let Some(error) = errors.find(|error| error.is_refusal()) {
        return Err(error.clone());
    }
    let segment = |found| FileReport::segment(path, found, ReportState::NeedsRecovery);
    Ok(std::iter::once(own)
        .chain(segments.iter().map(segment))
        .collect())
}

/// Looks at the sorted files, in the manifest's order, and then at their levels.
fn look_at_spill(
    root: &Folder,
    manifest: &Manifest,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<FileReport>> {
    let folder = Folder::at(root.join(directory::SPILL), root.faults());
    let total = manifest.files.iter().map(|file| file.len).sum();
    let done = AtomicU64::new(0);
    let told = |bytes| {
        let done = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        tell(progress, "sorted files", done, total);
    };
    let check = |file: &LevelFile| {
        let checked = mend::check(&folder, file, manifest.store_id, &told);
        match checked {
            Err(error) if error.is_refusal() => Err(error),
            checked => Ok(FileReport::sst(root.path(), &file.path(&folder), &checked)),
        }
    };
    let files = manifest.files.par_iter().map(check);
    let mut files: Vec<FileReport> = files.collect::<Result<_>>()?;
    if let Err(error) = mend::check_levels(&folder, &manifest.files, manifest.store_id) {
        let mut levels = FileReport::new(root.path(), folder.path(), StoreFile::Sst);
        levels.complain(error);
        files.push(levels);
    }
    Ok(files)
}

/// Saves what damaged sorted files have; `files` are the reports of all, in the manifest's order.
fn mend_spill(directory: &Directory, files: &[FileReport]) -> Result<()> {
    let manifest = directory.manifest();
    for (file, report) in manifest.files.iter().zip(files) {
        if report.state != ReportState::Damaged {
            continue;
        }
        let mended = mend::mend(directory.spill(), file, manifest.store_id)?.file;
        Catalog::edit(directory, mended.as_slice(), &[file.number])?;
    }
    Ok(())
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
    let spilled = files.iter().filter(|file| file.kind == StoreFile::Sst);
    let spilled: u64 = spilled.map(|file| file.checked).sum();
    let mut report = StoreReport::new(files);
    report.items = spilled + index.as_ref().map_or(0, |index| index.items);
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
    let outcome = match root.has(directory::INDEX)? {
        true => {
            let options = MapOptions {
                faults: root.faults(),
                ..MapOptions::default()
            };
            repair::recover_with(&path, check, progress, &options)
        }
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
        Err(error) if error.is_refusal() || matches!(error, Error::InUse { .. }) => {
            return Err(error);
        }
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
    let spilled = look_at_spill(root, &manifest, progress)?;
    let is_damaged = |file: &FileReport| file.state == ReportState::Damaged;
    if !salvage && files.iter().chain(&spilled).any(is_damaged) {
        files.extend(spilled);
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
    mend_spill(&directory, &spilled)?;
    files.extend(spilled);
    let mut options = StoreOptions::new().salvage(salvage);
    if let Some(faults) = root.faults() {
        options = options.faults(faults);
    }
    let told = |done, total| tell(progress, "log", done, total);
    let (state, log_records) = open_in(
        Arc::new(directory),
        Sorter::new(Engine::Cpu)?,
        &options,
        &told,
    )?;
    let stats = state.tiers.table.stats();
    let items = state.tiers.keys();
    state.close()?;
    for file in &mut files {
        if file.state == ReportState::NeedsRecovery {
            file.state = ReportState::Recovered;
        }
    }
    let mut report = StoreReport::new(files);
    report.items = items;
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
