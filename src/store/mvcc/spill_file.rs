//! Files without a name, for old values and for keys that were read: each ends with the last of its values, or with
//! the process. Until then, what has none of them any more goes back to the file system, piece by piece: one old snapshot
//! does not keep what later ones saw.

#[cfg(all(test, not(loom)))]
mod tests;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::old_versions::{OldVersion, VersionBytes};
use crate::pm::{Dir, PmFile};
use crate::process::Opener;
use crate::width::to_usize;
use crate::{Error, Result};

/// What the files are called in errors. On a file system that cannot make a file without a name, a crash may
/// leave an empty one of this.
pub const NAME: &str = "OLD_VERSIONS";

/// The share of the memory budget that old versions have.
const BUDGET_SHARE: u64 = 16;

/// The share of the memory budget that keys have which one transaction has read, and its least bytes.
const READ_SHARE: u64 = 64;
const READ_BYTES_MIN: u64 = 64 << 10;

/// Shorter values stay in memory: to name them in a file takes as much.
pub const SPILLED_VALUE_BYTES_MIN: usize = 64;

/// Values that are longer are written from where they are; others are gathered up to as much.
const GATHERED_BYTES_MAX: usize = 256 << 10;

/// Bytes after which another file is begun, at least.
const FILE_BYTES_MIN: u64 = 64 << 20;

/// The part of all spilled bytes that a file may have: few values do not keep the rest of it for long, and there
/// are not many files.
const FILE_SHARE: u64 = 8;

/// Bytes that go back to the file system together.
const PIECE_BYTES: u64 = 256 << 10;

/// A file without a name, to which values are appended.
#[derive(Debug)]
pub struct SpillFile {
    pub(super) file: PmFile,
    /// What the values are called in errors.
    what: &'static str,
    /// Where the next value begins.
    end: Mutex<u64>,
    /// How many values each piece of the file has a part of.
    values: Mutex<Vec<u32>>,
    opener: Opener,
}

impl SpillFile {
    fn create(dir: &Dir, what: &'static str) -> Result<Self> {
        Ok(Self {
            file: PmFile::create_unnamed(&dir.entry(NAME))?,
            what,
            end: Mutex::new(0),
            values: Mutex::default(),
            opener: Opener::this(),
        })
    }

    /// Appends values; after an error none of them.
    pub fn append(self: &Arc<Self>, values: &[&[u8]]) -> Result<Vec<SpilledValue>> {
        let mut end = self.end.lock();
        let appended = self.write(values, *end);
        match &appended {
            Ok(_) => *end += values.iter().map(|value| value.len() as u64).sum::<u64>(),
            // What was written of them takes room that a full disk needs.
            Err(_) => drop(self.file.set_len(*end)),
        }
        appended
    }

    fn write(self: &Arc<Self>, values: &[&[u8]], mut at: u64) -> Result<Vec<SpilledValue>> {
        // Before anything is written: what has values is not given back meanwhile.
        let spilled = self.name(values, at);
        let mut gathered = Vec::new();
        let mut gathered_at = at;
        for value in values {
            if gathered.len() + value.len() > GATHERED_BYTES_MAX {
                self.file.write(&gathered, gathered_at)?;
                gathered.clear();
                gathered_at = at;
            }
            match value.len() > GATHERED_BYTES_MAX {
                true => {
                    self.file.write(value, at)?;
                    gathered_at = at + value.len() as u64;
                }
                false => gathered.extend_from_slice(value),
            }
            at += value.len() as u64;
        }
        self.file.write(&gathered, gathered_at)?;
        Ok(spilled)
    }

    /// The values of which the first is to stand at `at`, and the others behind it.
    fn name(self: &Arc<Self>, values: &[&[u8]], mut at: u64) -> Vec<SpilledValue> {
        let name = |value: &&[u8]| {
            let spilled = SpilledValue {
                file: Arc::clone(self),
                at,
                checksum: xxh3_64(value),
                len: u32::try_from(value.len()).expect("a value is shorter"),
            };
            self.hold(spilled.pieces());
            at += value.len() as u64;
            spilled
        };
        values.iter().map(name).collect()
    }

    fn hold(&self, pieces: Range<usize>) {
        let mut values = self.values.lock();
        if values.len() < pieces.end {
            values.resize(pieces.end, 0);
        }
        values[pieces].iter_mut().for_each(|count| *count += 1);
    }

    fn release(&self, pieces: Range<usize>) {
        // A child of the process drops what the parent reads on.
        if !self.opener.is_here() {
            return;
        }
        let mut values = self.values.lock();
        let mut unused: Option<Range<usize>> = None;
        for piece in pieces {
            values[piece] -= 1;
            if values[piece] == 0 {
                unused = Some(unused.map_or(piece, |unused| unused.start)..piece + 1);
            }
        }
        let Some(unused) = unused else {
            return;
        };
        // Between two pieces of one value there are none of others. Under the lock: nobody writes there meanwhile.
        let [from, to] = [unused.start, unused.end].map(|piece| piece as u64 * PIECE_BYTES);
        if let Err(error) = self.file.punch(from, to) {
            tracing::debug!(%error, "room of old versions stays until the last of them goes");
        }
    }
}

/// A value in a file, which it keeps.
#[derive(Debug)]
pub struct SpilledValue {
    file: Arc<SpillFile>,
    pub(super) at: u64,
    checksum: u64,
    len: u32,
}

impl Clone for SpilledValue {
    fn clone(&self) -> Self {
        self.file.hold(self.pieces());
        Self {
            file: Arc::clone(&self.file),
            ..*self
        }
    }
}

impl Drop for SpilledValue {
    fn drop(&mut self) {
        self.file.release(self.pieces());
    }
}

impl SpilledValue {
    /// The pieces of the file that have a part of it.
    fn pieces(&self) -> Range<usize> {
        let end = (self.at + u64::from(self.len)).div_ceil(PIECE_BYTES);
        to_usize(self.at / PIECE_BYTES)..to_usize(end)
    }

    /// Length of the value.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Reads the value.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is another one by now, or what the operating system answers.
    pub fn read(&self) -> Result<Vec<u8>> {
        let file = &self.file.file;
        let mut value = vec![0; self.len()];
        let read = file.read(&mut value, self.at)?;
        let damaged = |found| Error::Damaged {
            path: file.path().to_path_buf(),
            what: self.file.what,
            at: self.at,
            found,
        };
        if read < value.len() {
            return Err(damaged(format!("{read} bytes of {}", value.len())));
        }
        let checksum = xxh3_64(&value);
        if checksum != self.checksum {
            return Err(damaged(format!(
                "checksum {checksum:#x}; expected {:#x}",
                self.checksum
            )));
        }
        Ok(value)
    }
}

/// Takes values of old versions out of memory.
pub struct VersionSpill {
    dir: Dir,
    /// Bytes of memory that old versions may take.
    pub memory_bytes_max: u64,
    /// Bytes of memory that keys may take which one transaction has read.
    pub read_bytes_max: u64,
    /// The file to which values are appended, while it has any.
    file: Mutex<Weak<SpillFile>>,
    /// The last values could not be written.
    fails: AtomicBool,
}

impl VersionSpill {
    /// Files on the disk of `dir`, as far as a memory budget has no room.
    pub fn new(dir: Dir, memory_budget: u64) -> Self {
        Self {
            dir,
            memory_bytes_max: memory_budget / BUDGET_SHARE,
            read_bytes_max: (memory_budget / READ_SHARE).max(READ_BYTES_MIN),
            file: Mutex::default(),
            fails: AtomicBool::new(false),
        }
    }

    /// A file for what else has no room in memory, and is called so in errors.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn create_file(&self, what: &'static str) -> Result<SpillFile> {
        SpillFile::create(&self.dir, what)
    }

    /// Moves values into a file; `bytes` are those of all versions, these included, and change by that. What
    /// cannot be written stays in memory.
    pub fn spill<'v>(
        &self,
        versions: impl Iterator<Item = &'v mut OldVersion>,
        bytes: &mut VersionBytes,
    ) {
        let mut moved: Vec<&mut OldVersion> = versions
            .filter(|version| version.to_spill().is_some())
            .collect();
        let values = moved.iter().filter_map(|version| version.to_spill());
        let values: Vec<&[u8]> = values.collect();
        if values.is_empty() {
            return;
        }
        match self.append(&values, bytes.spilled) {
            Ok(spilled) => {
                self.fails.store(false, Ordering::Relaxed);
                for (version, spilled) in moved.iter_mut().zip(spilled) {
                    bytes.in_memory -= spilled.len() as u64;
                    bytes.spilled += spilled.len() as u64;
                    **version = OldVersion::Spilled(spilled);
                }
            }
            Err(error) => {
                if !self.fails.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "old versions stay in memory, beyond the budget");
                }
            }
        }
    }

    fn append(&self, values: &[&[u8]], spilled_bytes: u64) -> Result<Vec<SpilledValue>> {
        let mut current = self.file.lock();
        let file_bytes_max = FILE_BYTES_MIN.max(spilled_bytes / FILE_SHARE);
        let has_room = |file: &Arc<SpillFile>| *file.end.lock() < file_bytes_max;
        let file = match current.upgrade().filter(has_room) {
            Some(file) => file,
            None => {
                let file = Arc::new(self.create_file("old version")?);
                *current = Arc::downgrade(&file);
                file
            }
        };
        file.append(values)
    }
}
