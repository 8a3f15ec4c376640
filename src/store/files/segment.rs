//! A segment of the log: one file of records, in the order of their sequence numbers.
//!
//! ```text
//!  0       8         12         16         32       40      48     56         64
//!  | magic | version | reserved | store id | number | first | salt | checksum | records ...
//! ```
//!
//! *first* is the first sequence number that is not in the segments before. A segment can hold
//! records from *first* of the next one on, if the next was begun because their sync had failed.
//! The next one has them again, or they were answered with an error.
//!
//! The file may be that of a segment that no longer counted: its room is there already, so a sync has
//! nothing but the records to make durable. What it had is behind the new records then, and no record
//! there, since the salt is another.

use std::path::Path;

use bytemuck::{Pod, Zeroable};
use gphash_log_record::SEQUENCE_LIMIT;
use static_assertions::const_assert_eq;

use super::manifest::Manifest;
use crate::layout::preamble::{self, FileFormat, Preamble};
use crate::pm::{Dir, PmFile, Window};
use crate::pool::{heap, parallel};
use crate::process;
use crate::width::to_usize;
use crate::{Error, Result};

const FORMAT: FileFormat = FileFormat {
    magic: *b"GPHWAL\r\n",
    version: 1,
};

/// Bytes of the header of a segment.
pub const SEGMENT_HEADER: u64 = size_of::<Header>() as u64;

/// What the files of all partitions together are made longer by when they are full, so that few syncs wait for a new
/// length. Unit tests write and read thousands of short logs, and make them longer more often so.
const EXTENSION: u64 = if cfg!(test) { 64 << 10 } else { 1 << 20 };

/// What each of them is made longer by at least. It is also what is mapped of it, and each change of that interrupts
/// all cores.
const EXTENSION_MIN: u64 = if cfg!(test) { 64 << 10 } else { 256 << 10 };

/// The same where the disk has no room for that.
pub const LEAST_EXTENSION: u64 = 16 << 10;

/// Bytes that a thread reads at a time.
const PIECE_BYTES: usize = 4 << 20;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    preamble: Preamble,
    number: u64,
    first: u64,
    salt: u64,
    checksum: u64,
}

const_assert_eq!(size_of::<Header>(), 64);

/// What the file of one of so many partitions is made longer by when it is full.
pub fn extension(partitions: u32) -> u64 {
    let share = EXTENSION / u64::from(partitions.next_power_of_two());
    share.max(EXTENSION_MIN)
}

/// The name of segment `number` in its directory.
pub fn name(number: u64) -> String {
    format!("{number:012}.log")
}

/// The number of the segment that has this name.
pub fn number(file_name: &str) -> Option<u64> {
    let number = file_name.strip_suffix(".log")?.parse().ok()?;
    (name(number) == file_name).then_some(number)
}

/// Numbers of the segments in a directory, in order, whatever they hold.
///
/// # Errors
/// What the operating system answers.
pub fn numbers(dir: &Dir) -> Result<Vec<u64>> {
    let names = dir.names()?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The store that segment `number` says that it belongs to, if its header is whole.
///
/// # Errors
/// What the operating system answers, and [`Error::NewerFormat`].
pub fn store_of(dir: &Dir, number: u64) -> Result<Option<[u64; 2]>> {
    match read_header(&dir.open_file(&name(number), false)?) {
        Ok(header) if header.number == number => Ok(Some(header.preamble.store_id)),
        Err(error) if error.is_no_damage() => Err(error),
        Ok(_) | Err(_) => Ok(None),
    }
}

/// Whether segment `number` had a header that is not whole any more. One that was about to be made had none.
///
/// # Errors
/// What the operating system answers, and [`Error::NewerFormat`].
pub fn has_damaged_header(dir: &Dir, number: u64) -> Result<bool> {
    let file = dir.open_file(&name(number), false)?;
    match read_header(&file) {
        Ok(_) => Ok(false),
        Err(error) if error.is_no_damage() => Err(error),
        Err(_) => {
            let mut header = [0; size_of::<Header>()];
            file.read(&mut header, 0)?;
            Ok(header.iter().any(|byte| *byte != 0))
        }
    }
}

/// The last segment of the log. A crash, or an older copy of the manifest, may leave others behind the last one that
/// the manifest counts: records there go on from its records.
///
/// # Errors
/// What the operating system answers, and [`Error::NewerFormat`] of any segment from the first one on: what a log is
/// cut off from is removed.
pub fn last(dir: &Dir, manifest: &Manifest) -> Result<u64> {
    for number in numbers(dir)? {
        if number >= manifest.first_segment {
            store_of(dir, number)?;
        }
    }
    let mut last = manifest.last_segment;
    while dir.has(&name(last + 1))? {
        match Segment::open(dir, manifest.store_id, last + 1) {
            Ok(_) => last += 1,
            Err(error) if error.is_refusal() => return Err(error),
            // It was about to be made.
            Err(_) => break,
        }
    }
    Ok(last)
}

/// An open segment.
#[derive(Debug)]
pub struct Segment {
    file: PmFile,
    /// Its number.
    pub number: u64,
    /// First sequence number that is not in the segments before.
    pub first: u64,
    /// What makes the checksums of its records different from those of others.
    pub salt: u64,
}

impl Segment {
    /// Begins a file for segment `number`, out of a `spare` one that has this name already if there is one. It is a
    /// segment once it has a [header](Self::write_header).
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn begin(dir: &Dir, number: u64, first: u64, spare: Option<PmFile>) -> Result<Self> {
        let file = match spare {
            Some(file) => file,
            None => dir.create_file(name(number))?,
        };
        let salt = process::random_number();
        Ok(Self {
            file,
            number,
            first,
            salt,
        })
    }

    /// Makes it a segment of a store, and its name durable.
    ///
    /// # Errors
    /// What the operating system answers; it may be a segment all the same.
    pub fn write_header(&self, store_id: [u64; 2]) -> Result<()> {
        let mut header = Header {
            preamble: FORMAT.preamble(0, store_id),
            number: self.number,
            first: self.first,
            salt: self.salt,
            checksum: 0,
        };
        preamble::seal(bytemuck::bytes_of_mut(&mut header));
        self.file.write(bytemuck::bytes_of(&header), 0)?;
        self.file.sync()?;
        self.file.sync_dir()
    }

    /// Opens segment `number` for reading.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Foreign`], [`Error::NewerFormat`], [`Error::DamagedLog`], or what
    /// the operating system answers.
    pub fn open(dir: &Dir, store_id: [u64; 2], number: u64) -> Result<Self> {
        if !dir.has(&name(number))? {
            return Err(Error::Missing {
                path: dir.join(name(number)),
                advice: "put it back, or open the store with StoreOptions::salvage(true), which \
                         keeps what the segments before it hold",
            });
        }
        let file = dir.open_file(&name(number), false)?;
        let header = read_header(&file)?;
        let damaged = |at, found| Error::DamagedLog {
            path: file.path().to_path_buf(),
            at,
            found,
        };
        let found_id = header.preamble.store_id;
        if found_id != store_id {
            let found = format!("segment of another store, {found_id:x?}");
            return Err(damaged(16, found));
        }
        if header.number != number {
            let found = format!("segment number {}; expected {number}", header.number);
            return Err(damaged(32, found));
        }
        Ok(Self {
            number,
            first: header.first,
            salt: header.salt,
            file,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Bytes of the file.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn len(&self) -> Result<u64> {
        self.file.len()
    }

    /// Puts all bytes of the file in place of `bytes`. Several threads read them.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn contents(&self, bytes: &mut Vec<u8>) -> Result<()> {
        let len = to_usize(self.len()?);
        if bytes.capacity() < len {
            *bytes = heap::zeroed(len);
        }
        bytes.resize(len, 0);
        let read =
            |(nth, piece): (usize, &mut [u8])| self.file.read(piece, (nth * PIECE_BYTES) as u64);
        let lens = parallel::map(bytes.chunks_mut(PIECE_BYTES).enumerate(), read);
        bytes.truncate(lens.into_iter().sum::<Result<usize>>()?);
        Ok(())
    }

    /// Makes room up to `end` in the file, and up to a multiple of `extension` if the disk has that, in which all
    /// behind `at` is free and whose room ends at `room`. Gives where it ends now.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn make_room(&self, at: u64, end: u64, room: u64, extension: u64) -> Result<u64> {
        if end <= room {
            return Ok(room);
        }
        let extend = |unit| {
            let room = end.next_multiple_of(unit);
            let extended = self.file.allocate(at, room).map(|()| room);
            extended.map_err(|source| Error::io(self.file.path(), "extend", source))
        };
        match extend(extension) {
            Err(Error::NoSpace { .. }) => extend(LEAST_EXTENSION),
            extended => extended,
        }
    }

    /// Gives back what the file has beyond `room`, if it can be.
    pub fn cut(&self, room: u64) {
        if let Err(error) = self.file.set_len(room) {
            tracing::warn!(%error, "room in the log stays");
        }
    }

    /// Makes room from `room` up to `end`, and up to a multiple of `extension`, beside others who may write there: where that
    /// takes writes, or the disk has not so much, it makes none. Gives where it ends now.
    pub fn make_room_beside(&self, room: u64, end: u64, extension: u64) -> u64 {
        let extended = end.next_multiple_of(extension);
        match end > room && self.file.allocate_unwritten(room, extended).is_ok() {
            true => extended,
            false => room,
        }
    }

    /// A window of so many bytes to the file, for the one who appends to it.
    pub fn window(&self, bytes: u64) -> Window {
        Window::to(&self.file, bytes)
    }

    /// Writes bytes into the file, which has room up to `room`, through its window. Others may write elsewhere at the
    /// same time.
    ///
    /// # Errors
    /// What the operating system answers; some of it may have been written.
    pub fn append(&self, window: &mut Window, bytes: &[u8], at: u64, room: u64) -> Result<()> {
        window.write(&self.file, bytes, at, room)
    }

    /// Writes bytes into the file, where it has room. Others may write elsewhere at the same time.
    ///
    /// # Errors
    /// What the operating system answers; some of it may have been written.
    pub fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.file.write(bytes, at)
    }

    /// Writes the bytes of segment `number` up to `end` over themselves, durably, the name too, unless it lives in memory.
    /// They are read if they are not `known`.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn rewrite(dir: &Dir, number: u64, end: u64, known: Option<&[u8]>) -> Result<()> {
        let file = dir.open_file(&name(number), true)?;
        if file.is_in_memory() && !file.has_faults() {
            // No sync has lost any of it.
            return Ok(());
        }
        match known {
            Some(known) => {
                // What fills up the last record may be missing.
                file.write(&known[..to_usize(end).min(known.len())], 0)?;
                file.sync()?;
            }
            None => file.rewrite(end)?,
        }
        file.sync_dir()
    }

    /// Waits until all that was written is durable.
    ///
    /// # Errors
    /// What the operating system answers; then nothing since the last success can be trusted.
    pub fn sync(&self) -> Result<()> {
        self.file.sync()
    }
}

fn read_header(file: &PmFile) -> Result<Header> {
    let mut header = Header::zeroed();
    let len = file.read(bytemuck::bytes_of_mut(&mut header), 0)?;
    let bytes = bytemuck::bytes_of(&header);
    FORMAT
        .check(&bytes[..len], file.path())
        .map_err(|error| match error {
            Error::Damaged {
                path, at, found, ..
            } => Error::DamagedLog { path, at, found },
            error => error,
        })?;
    let path = file.path().to_path_buf();
    if header.checksum != preamble::checksum(bytes) {
        return Err(Error::DamagedLog {
            path,
            at: 0,
            found: "the checksum of the header does not match".into(),
        });
    }
    if !(1..SEQUENCE_LIMIT).contains(&header.first) {
        let found = format!(
            "its first sequence number is {}; expected 1 to {}",
            header.first,
            SEQUENCE_LIMIT - 1
        );
        let at = 40;
        return Err(Error::DamagedLog { path, at, found });
    }
    Ok(header)
}

#[cfg(all(test, not(loom)))]
mod tests;
