//! A window through which a file is written without a call to the operating system, where its pages are memory
//! that all processes share. What is stored there outlives the process at once, as what a `pwrite` has written. Long
//! records are written by calls all the same, and short ones between many of them, too: to move the window on, which
//! interrupts all cores, takes longer than some hundred calls.

use memmap2::{MmapMut, MmapOptions};

use super::domain::FileSystem;
use super::file::PmFile;
use crate::Result;
use crate::width::to_usize;

/// From how many bytes on a call writes them: to map their pages takes longer.
const CALL_BYTES_MIN: usize = 4096;

/// How many short records must have come for the window to move on. A long one takes so many from them, and they
/// never count for more than that.
const SHORT_RECORDS_MIN: u32 = 64;
const SHORT_RECORDS_A_LONG_ONE: u32 = 8;

/// See the [module](self). It belongs to one file, whose blocks up to the written bytes are allocated.
#[derive(Debug, Default)]
pub struct Window {
    /// What is mapped, and from which offset of the file on.
    mapped: Option<(MmapMut, u64)>,
    /// Short records, less those that long ones take from them.
    short: u32,
    /// Bytes that are mapped at a time, which count as memory of the process. The file cannot be mapped if it is 0.
    bytes: u64,
}

impl Window {
    /// The window of so many bytes, a multiple of the pages, to a file; none if its pages are not memory.
    pub fn to(file: &PmFile, bytes: u64) -> Self {
        let is_memory = FileSystem::of(file)
            .is_ok_and(|it| it.in_memory && it.writable && bytes.is_multiple_of(it.unit));
        Self {
            mapped: None,
            short: SHORT_RECORDS_MIN,
            // Tests that put faults under the file want to see each of its calls.
            bytes: match is_memory && !file.has_faults() {
                true => bytes,
                false => 0,
            },
        }
    }

    /// Writes all of `bytes` at `at`, as [`PmFile::write`], of which the file has room for all up to `room`.
    /// Nobody may write elsewhere through the window.
    ///
    /// # Errors
    /// Those of [`PmFile::write`].
    pub fn write(&mut self, file: &PmFile, bytes: &[u8], at: u64, room: u64) -> Result<()> {
        let part = match bytes.len() {
            0..CALL_BYTES_MIN => {
                self.short = SHORT_RECORDS_MIN.min(self.short + 1);
                self.part(file, at, at + bytes.len() as u64, room)
            }
            _ => {
                self.short = self.short.saturating_sub(SHORT_RECORDS_A_LONG_ONE);
                None
            }
        };
        match part {
            Some(part) => {
                part.copy_from_slice(bytes);
                Ok(())
            }
            None => file.write(bytes, at),
        }
    }

    /// The bytes from `from` to `to` of the file, if they are in one window.
    fn part(&mut self, file: &PmFile, from: u64, to: u64, room: u64) -> Option<&mut [u8]> {
        let start = from.checked_div(self.bytes)? * self.bytes;
        let end = room.min(start + self.bytes);
        if to > end {
            return None;
        }
        let is_mapped =
            |(map, first): &(MmapMut, u64)| *first == start && to - start <= map.len() as u64;
        if !self.mapped.as_ref().is_some_and(is_mapped) {
            if self.short < SHORT_RECORDS_MIN {
                return None;
            }
            self.mapped = None;
            self.mapped = self.map(file, start, end).map(|map| (map, start));
        }
        let (map, _) = self.mapped.as_mut()?;
        Some(&mut map[to_usize(from - start)..to_usize(to - start)])
    }

    /// Maps a part of the file. Where that fails, all further bytes are written by calls.
    fn map(&mut self, file: &PmFile, start: u64, end: u64) -> Option<MmapMut> {
        // A store into a hole would end the process if there is no memory for it.
        let held = file.allocate(start, end);
        let mapped = held.and_then(|()| {
            let mut options = MmapOptions::new();
            options.offset(start).len(to_usize(end - start)).populate();
            // SAFETY: only the owner of the store writes to the file, which it has locked, and through this window
            // nobody else; the file has these bytes, and is cut only behind `room` while the window is open. Who cuts it
            // from outside ends the process, as with the file of the index.
            unsafe { options.map_mut(file) }
        });
        if let Err(error) = &mapped {
            tracing::debug!(%error, path = %file.path().display(), "no window to the file");
            self.bytes = 0;
        }
        mapped.ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
