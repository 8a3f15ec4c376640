//! A window through which a file is written without a call to the operating system, where its pages are memory
//! that all processes share. What is stored there outlives the process at once, as what a `pwrite` has written.

use memmap2::{MmapMut, MmapOptions};

use super::domain::FileSystem;
use super::file::PmFile;
use crate::Result;
use crate::width::to_usize;

/// See the [module](self). It belongs to one file, whose blocks up to the written bytes are allocated.
#[derive(Debug, Default)]
pub struct Window {
    /// What is mapped, and from which offset of the file on.
    mapped: Option<(MmapMut, u64)>,
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
        let start = from.checked_div(self.bytes)? * self.bytes;
        let end = room.min(start + self.bytes);
        if to > end {
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
            self.bytes = 0;
        }
        mapped.ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pm::Dir;

    const BYTES: u64 = 256 << 10;

    #[test]
    fn what_is_written_through_a_window_is_in_the_file() {
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let dir = Dir::at(memory.path().to_path_buf(), None);
        let file = dir.create_file("log").unwrap();
        let mut window = Window::to(&file, BYTES);
        assert_eq!(window.bytes, BYTES, "/dev/shm is memory");
        let mut expected = Vec::new();
        let mut windows = 0;
        for nth in 0..=u8::MAX {
            // Some are in one window, some in two, one is longer than a window.
            let len = match nth {
                100 => to_usize(BYTES) + 5,
                _ => 6_000 + usize::from(nth),
            };
            let (at, bytes) = (expected.len() as u64, vec![nth; len]);
            expected.extend(&bytes);
            // As on a disk with little room.
            let room = (expected.len() as u64).next_multiple_of(16 << 10);
            file.allocate(at, room).unwrap();
            window.write(&file, &bytes, at, room).unwrap();
            windows += u32::from(window.mapped.is_some());
            // Calls and stores meet in the same bytes.
            if nth % 16 == 0 {
                let end = expected.len();
                file.write(&[1, 2, 3], end as u64 - 3).unwrap();
                window.write(&file, &[9], end as u64 - 2, room).unwrap();
                expected[end - 3..].copy_from_slice(&[1, 9, 3]);
            }
        }
        assert!(windows > 250, "{windows}");
        let mut found = vec![0; expected.len()];
        assert_eq!(file.read(&mut found, 0).unwrap(), found.len());
        assert!(found == expected);
    }

    #[test]
    fn file_is_written_with_a_window_and_without() {
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        for at in [&memory, &disk] {
            let dir = Dir::at(at.path().to_path_buf(), None);
            let file = dir.create_file("log").unwrap();
            let mut window = Window::to(&file, BYTES);
            window.write(&file, b"record", 3, u64::MAX).unwrap();
            window.write(&file, b"more", 9, 16).unwrap();
            let mut found = [1; 13];
            assert_eq!(file.read(&mut found, 0).unwrap(), 13);
            assert_eq!(&found, b"\0\0\0recordmore");
        }
        let dir = Dir::at(memory.path().to_path_buf(), None);
        let read_only = dir.open_file("log", false).unwrap();
        let mut window = Window::to(&read_only, BYTES);
        assert!(window.write(&read_only, b"record", 3, 16).is_err());
        assert_eq!(window.bytes, 0, "no room can be made sure of");
    }
}
