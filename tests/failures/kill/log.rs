//! What the child was about to do and what it has done, in a file that a kill at any moment
//! leaves readable.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// Word after the last of an entry's changes: the verb has returned.
const DONE: u64 = u64::MAX;

/// One batch, or one checkpoint if it changes nothing.
#[derive(Debug, PartialEq)]
pub struct Entry {
    /// Number of the last checkpoint begun before it, or its own.
    pub phase: u64,
    /// Keys and their versions after it; version 0 for a key that is gone.
    pub changes: Vec<(u64, u64)>,
    /// Whether the verb has returned.
    pub done: bool,
}

/// The log of one thread. Writes go to the page cache, which outlives the process.
pub struct Log(File);

impl Log {
    pub fn create(path: &Path) -> Self {
        Self(File::create(path).unwrap())
    }

    /// Says what is going to be done. A kill inside leaves a torn entry, of which nothing was
    /// done.
    pub fn begin(&mut self, phase: u64, changes: &[(u64, u64)]) {
        let mut words = vec![phase, changes.len() as u64];
        words.extend(changes.iter().flat_map(|&(key, version)| [key, version]));
        self.0.write_all(bytemuck::cast_slice(&words)).unwrap();
    }

    /// Says that it has been done.
    pub fn end(&mut self) {
        self.0.write_all(bytemuck::bytes_of(&DONE)).unwrap();
    }
}

/// Reads a log; one that was never begun is empty.
pub fn read(path: &Path) -> Vec<Entry> {
    let bytes = fs::read(path).unwrap_or_default();
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(bytemuck::pod_read_unaligned)
        .collect();
    let mut rest = words.as_slice();
    let mut entries = Vec::new();
    while let [phase, count, behind @ ..] = rest {
        let Some((changes, behind)) = behind.split_at_checked(usize::try_from(*count).unwrap() * 2)
        else {
            break;
        };
        entries.push(Entry {
            phase: *phase,
            changes: changes
                .chunks_exact(2)
                .map(|pair| (pair[0], pair[1]))
                .collect(),
            done: behind.first() == Some(&DONE),
        });
        rest = behind.get(1..).unwrap_or_default();
    }
    entries
}
