//! What the files of a store say of it, and of each other, before it is open.

use std::path::PathBuf;

use super::dir::{INDEX, LOCK, LOG, MANIFEST, SPILL};
use super::manifest;
use super::manifest::{Copies, Manifest};
use crate::layout::Mark;
use crate::layout::mark::{MARKS, MARKS_LEN};
use crate::pm::{Dir, PmFile};
use crate::{Error, Result};

/// A directory that `mkfs` leaves in the root of a file system.
const LOST_AND_FOUND: &str = "lost+found";

/// The manifests of the directory, or `None` if there can be a new store.
///
/// # Errors
/// As [`StoreDir::open`](super::dir::StoreDir::open).
pub fn inspect(root: &Dir) -> Result<Option<Copies>> {
    let names = root.names()?;
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if manifest::NAMES.into_iter().any(has) {
        return Manifest::find(root).map(Some);
    }
    if has(INDEX) || has(LOG) || has(SPILL) {
        return Err(Error::Missing {
            path: root.join(MANIFEST),
            advice: "put it back, or run gphash-recover --salvage: without it nothing says which \
                     files of the log and of sst/ count",
        });
    }
    // What `mkfs` leaves in the root of a file system is nobody's.
    let ours = [LOST_AND_FOUND, LOCK, manifest::NEXT_NAME];
    match names.iter().find(|name| !ours.contains(&name.as_str())) {
        Some(name) => Err(foreign(root, format!("{name:?} and no {MANIFEST}"))),
        None => Ok(None),
    }
}

/// The error for a directory that holds something else than a store, or nothing.
pub fn foreign(root: &Dir, found: impl Into<String>) -> Error {
    Error::ForeignDirectory {
        path: root.path().to_path_buf(),
        found: found.into(),
    }
}

/// Keeps the directory of a store from being opened while someone reads its files.
///
/// # Errors
/// [`Error::InUse`], or what the operating system answers.
pub fn lock_shared(root: &Dir) -> Result<Option<PmFile>> {
    if !root.has(LOCK)? {
        // The files have locks of their own.
        return Ok(None);
    }
    let lock = root.open_file(LOCK, false)?;
    lock.lock_shared()?;
    Ok(Some(lock))
}

/// The mark of the index in a directory, if it has one.
///
/// # Errors
/// [`Error::Damaged`], and what the operating system answers.
pub fn mark(root: &Dir) -> Result<Option<Mark>> {
    if !root.has(INDEX)? {
        return Ok(None);
    }
    let mut bytes = vec![0; MARKS_LEN];
    let read = root.open_file(INDEX, false)?.read(&mut bytes, MARKS)?;
    Mark::find(&bytes[..read]).map_err(|found| damaged(root.join(INDEX), "mark", MARKS, found))
}

/// See [`StoreDir::check_index`](super::dir::StoreDir::check_index).
///
/// # Errors
/// As there.
pub fn check_mark(root: &Dir, manifest: &Manifest, next: u64) -> Result<()> {
    let index = |found| Err(damaged(root.join(INDEX), "mark", MARKS, found));
    let Some(mark) = mark(root)? else {
        // That it is not there is said elsewhere.
        return match manifest.marked && root.has(INDEX)? {
            true => index("none, though the manifest knows of one".into()),
            false => Ok(()),
        };
    };
    if mark.store_id != manifest.store_id {
        return index(format!("the index of another store, {:x?}", mark.store_id));
    }
    if mark.sequence < manifest.sequence {
        return index(format!(
            "an older copy of the index, of request {}; the manifest says that it has all up to {}",
            mark.sequence, manifest.sequence
        ));
    }
    if mark.generation > manifest.generation {
        return Err(damaged(
            root.join(MANIFEST),
            "manifest",
            64,
            format!(
                "an older copy, of generation {}; the index has known {}",
                manifest.generation, mark.generation
            ),
        ));
    }
    if mark.sequence >= next {
        return Err(damaged(
            root.join(LOG),
            "log",
            0,
            format!(
                "it ends before request {next}; the index has all up to {}",
                mark.sequence
            ),
        ));
    }
    Ok(())
}

/// Which of the partitions of a store, in their order, are older copies, as far as their manifests tell.
pub fn older_copies(parts: &[(&Dir, &Manifest)]) -> Vec<(usize, Error)> {
    let (_, first) = parts[0];
    if !first.complete {
        return Vec::new();
    }
    let older = |number: usize, known: u64, by: usize| {
        let (root, manifest) = parts[number];
        let is_older = manifest.generation < known;
        is_older.then(|| {
            let found = format!(
                "an older copy, of generation {}; partition {by} has known {known}",
                manifest.generation
            );
            (number, damaged(root.join(MANIFEST), "manifest", 64, found))
        })
    };
    let (firsts, others) = (parts.iter().skip(1), first.others.iter());
    let first = firsts
        .enumerate()
        .find_map(|(nth, (_, other))| older(0, *other.others.first()?, nth + 1));
    let others = others.zip(1..parts.len());
    let others = others.filter_map(|(known, number)| older(number, *known, 0));
    first.into_iter().chain(others).collect()
}

pub(super) fn damaged(path: PathBuf, what: &'static str, at: u64, found: String) -> Error {
    Error::Damaged {
        path,
        what,
        at,
        found,
    }
}

/// The error for a directory that has no manifest, and never had one.
pub fn no_store(root: &Dir) -> Error {
    Error::Missing {
        path: root.join(MANIFEST),
        advice: "a directory without it is not a store",
    }
}

/// The error for an index that should be at `path`.
pub fn missing_index(path: PathBuf) -> Error {
    Error::Missing {
        path,
        advice: "put it back; the log holds only what was written since its last checkpoint",
    }
}
