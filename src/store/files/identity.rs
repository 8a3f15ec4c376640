//! Which store, and which partition of it, a directory is.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::dir::MANIFEST;
use super::manifest::Manifest;
use super::reserve::Shares;
use super::unopened;
use super::unopened::damaged;
use crate::pm::{Dir, parent_of};
use crate::process;
use crate::{Error, Result};

/// How many partitions a store is to have.
#[derive(Debug, Clone, Copy)]
pub struct PartitionCount {
    /// The number that the caller has asked for.
    pub wanted: Option<u32>,
    /// That of a new store, if he has asked for none.
    pub default: u32,
}

impl PartitionCount {
    /// Any; a new store has one.
    pub const ANY: Self = Self {
        wanted: None,
        default: 1,
    };
}

/// The names of what a store is opened with; empty for none.
#[derive(Debug, Clone, Copy)]
pub struct Names<'n> {
    pub merge_operator: &'n str,
    pub partitioner: &'n str,
}

impl Names<'_> {
    /// Whether a store was made with these.
    pub(super) fn check(self, root: &Dir, manifest: &Manifest) -> Result<()> {
        if manifest.unnamed {
            return Ok(());
        }
        for (option, found, expected) in [
            (
                "merge_operator",
                &manifest.merge_operator,
                self.merge_operator,
            ),
            ("partitioner", &manifest.partitioner, self.partitioner),
        ] {
            if found != expected {
                return Err(Error::OptionMismatch {
                    path: root.join(MANIFEST),
                    option,
                    found: format!("{found:?}"),
                    expected: format!("{expected:?}"),
                });
            }
        }
        Ok(())
    }
}

/// Which directory of a store is opened.
pub(super) enum Identity {
    /// The store's own.
    First(PartitionCount),
    /// That of the partition of this number; the first one has this manifest.
    Other(Box<Manifest>, u32, Arc<[AtomicU64]>, Arc<Shares>),
}

impl Identity {
    /// Whether a directory is what it should be, which has this manifest if it has one.
    pub(super) fn check(&self, root: &Dir, found: Option<&Manifest>) -> Result<()> {
        match (self, found) {
            (Self::First(_), Some(found)) if found.partition != 0 => check_first(root, found),
            (
                Self::First(PartitionCount {
                    wanted: Some(wanted),
                    ..
                }),
                Some(found),
            ) if found.complete && found.partitions != *wanted => Err(Error::OptionMismatch {
                path: root.join(MANIFEST),
                option: "partitions",
                found: found.partitions.to_string(),
                expected: wanted.to_string(),
            }),
            (Self::Other(first, ..), None) if first.complete => Err(missing_partition(root)),
            (Self::Other(first, number, ..), Some(found)) => {
                check_partition(root, (first, *number), found)
            }
            _ => Ok(()),
        }
    }

    /// The store's name, how many partitions it has, and which this is, where there is none yet.
    pub(super) fn new_identity(&self) -> ([u64; 2], u32, u32) {
        match self {
            Self::First(count) => (
                process::random_id(),
                count.wanted.unwrap_or(count.default),
                0,
            ),
            Self::Other(first, number, ..) => {
                let store_id = id_of_partition(first.store_id, *number);
                (store_id, first.partitions, *number)
            }
        }
    }
}

/// The error for a directory of a partition that is not there, or has nothing of one.
pub fn missing_partition(root: &Dir) -> Error {
    Error::Missing {
        path: root.path().to_path_buf(),
        advice: "a partition of the store; put it back: no other one has its keys",
    }
}

/// Says whether a manifest is that of the first partition of a store, whose directory is the store's.
///
/// # Errors
/// [`Error::Damaged`].
pub fn check_first(root: &Dir, found: &Manifest) -> Result<()> {
    match found.partition {
        0 => Ok(()),
        number => Err(not_first(root, number)),
    }
}

/// Says whether a directory whose own manifest does not tell may be a store's: that of another partition has the name
/// of one, and lies in a store.
///
/// # Errors
/// As [`check_first`], and what the operating system answers.
pub fn check_name(root: &Dir) -> Result<()> {
    let path = root.path();
    // The directory is a partition by the name that it was given, or by the one behind `.` or a link.
    let paths = [Some(path.to_path_buf()), path.canonicalize().ok()];
    for path in paths.iter().flatten() {
        let Some(number) = number_of(path) else {
            continue;
        };
        let above = Dir::at(parent_of(path).into(), root.faults());
        let is_partition = match unopened::inspect(&above) {
            Ok(Some(copies)) => number < copies.manifest.partitions,
            Ok(None) | Err(Error::ForeignDirectory { .. }) => false,
            Err(error) if error.is_refusal() => return Err(error),
            // A store that is damaged, or of another format.
            Err(_) => true,
        };
        if is_partition {
            return Err(not_first(root, number));
        }
    }
    Ok(())
}

fn not_first(root: &Dir, number: u32) -> Error {
    let found = format!("partition {number} of the store in the directory above; open that");
    damaged(root.join(MANIFEST), "partition", 12, found)
}

/// Says whether a directory is that of this partition of the store whose first partition has the manifest `first`.
///
/// # Errors
/// [`Error::Damaged`] if it is another partition, or one of another store.
pub fn check_partition(
    root: &Dir,
    (first, number): (&Manifest, u32),
    found: &Manifest,
) -> Result<()> {
    let store_id = id_of_partition(first.store_id, number);
    let is_it = found.store_id == store_id
        && found.partition == number
        && (!first.complete || found.complete && found.partitions == first.partitions);
    match is_it {
        true => Ok(()),
        false => Err(damaged(
            root.join(MANIFEST),
            "partition",
            12,
            format!(
                "partition {} of {} of store {:x?}, {}; expected partition {number} of {} of \
                 store {:x?}",
                found.partition,
                found.partitions,
                found.store_id,
                if found.complete {
                    "whole"
                } else {
                    "never finished"
                },
                first.partitions,
                store_id
            ),
        )),
    }
}

/// The id that the files of a partition have, of that of the store: no partition takes those of another one for its
/// own.
pub fn id_of_partition(store_id: [u64; 2], number: u32) -> [u64; 2] {
    [store_id[0], store_id[1] ^ u64::from(number)]
}

/// The name of the directory of a partition that is not the first one.
pub fn partition_name(number: u32) -> String {
    format!("partition-{number:03}")
}

/// The number of the partition whose directory has such a name.
fn number_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let number = name.strip_prefix("partition-")?.parse().ok()?;
    (number > 0 && name == partition_name(number)).then_some(number)
}
