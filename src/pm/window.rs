//! A window through which a file is written without a call to the operating system, where its pages are memory
//! that all processes share. What is stored there outlives the process at once, as what a `pwrite` has written.

use memmap2::{MmapMut, MmapOptions};

use super::domain::FileSystem;
use super::file::PmFile;
use crate::Result;
use crate::width::to_usize;

/// Bytes that are mapped at a time: so many count as memory of the process.
const WINDOW_BYTES: u64 = 1 << 20;

/// See the [module](self). It belongs to one file, whose blocks up to the written bytes are allocated.
#[derive(Debug, Default)]
pub struct Window {
    /// What is mapped, and from which offset of the file on.
    mapped: Option<(MmapMut, u64)>,
    /// The file cannot be mapped.
    is_closed: bool,
}

impl Window {
    /// The window to a file; one that stays closed if its pages are not memory.
    pub fn to(file: &PmFile) -> Self {
        let is_memory = FileSystem::of(file).is_ok_and(|it| it.in_memory && it.writable);
        Self {
            mapped: None,
            // Tests that put faults under the file want to see each of its calls.
            is_closed: !is_memory || file.has_faults(),
        }
    }

    /// Writes all of `bytes` at `at`, as [`PmFile::write`], of which the file has room for all up to `room`.
    /// Nobody may write elsewhere through the window.
    ///
    /// # Errors
    /// Those of [`PmFile::write`].
    pub fn write(&mut self, file: &PmFile, bytes: &[u8], at: u64, room: u64) -> Result<()> {
        match self.part(file, at, at + bytes.len() as u64, room) {
            Some(part) => {
                part.copy_from_slice(bytes);
                Ok(())
            }
            None => file.write(bytes, at),
        }
    }

    /// The bytes from `from` to `to` of the file, if they are in one window.
    fn part(&mut self, file: &PmFile, from: u64, to: u64, room: u64) -> Option<&mut [u8]> {
        let start = from / WINDOW_BYTES * WINDOW_BYTES;
        let end = room.min(start + WINDOW_BYTES);
        if self.is_closed || to > end {
            return None;
        }
        let is_mapped =
            |(map, first): &(MmapMut, u64)| *first == start && to - start <= map.len() as u64;
        if !self.mapped.as_ref().is_some_and(is_mapped) {
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
            // nobody else; the file has these bytes, and is never cut while the window is open. Who cuts it
            // from outside ends the process, as with the file of the index.
            unsafe { options.map_mut(file) }
        });
        if let Err(error) = &mapped {
            tracing::debug!(%error, path = %file.path().display(), "no window to the file");
            self.is_closed = true;
        }
        mapped.ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pm::Dir;

    #[test]
    fn what_is_written_through_a_window_is_in_the_file() {
        let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
            return;
        };
        let dir = Dir::at(memory.path().to_path_buf(), None);
        let file = dir.create_file("log").unwrap();
        let mut window = Window::to(&file);
        assert!(!window.is_closed, "/dev/shm is memory");
        let mut expected = vec![0; to_usize(3 * WINDOW_BYTES)];
        file.allocate(0, 3 * WINDOW_BYTES).unwrap();
        let mut at = 0;
        for nth in 0..=u8::MAX {
            // Some are in one window, some in two, one is longer than a window.
            let len = match nth {
                100 => to_usize(WINDOW_BYTES) + 5,
                _ => 6_000 + usize::from(nth),
            };
            let bytes = vec![nth; len];
            let room = (at + len as u64).next_multiple_of(64 << 10);
            window.write(&file, &bytes, at, room).unwrap();
            expected[to_usize(at)..][..len].copy_from_slice(&bytes);
            at += len as u64;
            // Calls and stores meet in the same bytes.
            if nth % 16 == 0 {
                file.write(&[1, 2, 3], at - 3).unwrap();
                expected[to_usize(at) - 3..to_usize(at)].copy_from_slice(&[1, 2, 3]);
                window.write(&file, &[9], at - 2, room).unwrap();
                expected[to_usize(at) - 2] = 9;
            }
        }
        let mut found = vec![0; expected.len()];
        assert_eq!(file.read(&mut found, 0).unwrap(), found.len());
        assert!(found == expected);
    }

    #[test]
    fn file_on_a_disk_has_no_window() {
        let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let dir = Dir::at(disk.path().to_path_buf(), None);
        let file = dir.create_file("log").unwrap();
        let mut window = Window::to(&file);
        window.write(&file, b"record", 3, 9).unwrap();
        let mut found = [1; 9];
        assert_eq!(file.read(&mut found, 0).unwrap(), 9);
        assert_eq!(&found, b"\0\0\0record");
        assert_eq!(window.is_closed, !FileSystem::of(&file).unwrap().in_memory);
    }
}
