//! A segment of the log: one file of records, in the order of their sequence numbers.
//!
//! ```text
//!  0       8         12         16         32       40      48     56         64
//!  | magic | version | reserved | store id | number | first | salt | checksum | records ...
//! ```
//!
//! *first* is the first sequence number that is not in the segments before. A segment can hold
//! records from *first* of the next one on, if the next was begun because their sync had failed: the
//! next one has them again, or they were answered with an error.
//!
//! The file may be that of a segment that no longer counted: its room is there already, so a sync has
//! nothing but the records to make durable. What it had is behind the new records then, and no record
//! there, since the salt is another.

use std::path::Path;

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use static_assertions::const_assert_eq;
use xxhash_rust::xxh3::xxh3_64;

use crate::pm::{Folder, PmFile};
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"GPHWAL\r\n";
const VERSION: u32 = 1;

/// Bytes of the header of a segment.
pub const SEGMENT_HEADER: u64 = size_of::<Header>() as u64;

/// What the file is made longer by when it is full, so that few syncs wait for its new length.
pub const EXTENSION: u64 = 1 << 20;

/// Bytes that a thread reads at a time.
const PIECE: usize = 4 << 20;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: u32,
    reserved: u32,
    store_id: [u64; 2],
    number: u64,
    first: u64,
    salt: u64,
    checksum: u64,
}

const_assert_eq!(size_of::<Header>(), 64);

impl Header {
    fn sum(&self) -> u64 {
        xxh3_64(&bytemuck::bytes_of(self)[..56])
    }
}

/// The name of segment `number` in its folder.
pub fn name(number: u64) -> String {
    format!("{number:012}.log")
}

/// The number of the segment that has this name.
pub fn number(file_name: &str) -> Option<u64> {
    let number = file_name.strip_suffix(".log")?.parse().ok()?;
    (name(number) == file_name).then_some(number)
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
    /// Makes an empty segment and its name durable, out of a `spare` file that has this name already if
    /// there is one.
    ///
    /// # Errors
    /// What the operating system answers; an incomplete file may be left.
    pub fn create(
        folder: &Folder,
        store_id: [u64; 2],
        number: u64,
        first: u64,
        spare: Option<PmFile>,
    ) -> Result<Self> {
        let file = match spare {
            Some(file) => file,
            None => folder.create_file(&name(number))?,
        };
        let mut header = Header {
            magic: MAGIC,
            version: VERSION,
            reserved: 0,
            store_id,
            number,
            first,
            salt: rand::random(),
            checksum: 0,
        };
        header.checksum = header.sum();
        file.write(bytemuck::bytes_of(&header), 0)?;
        file.sync()?;
        file.sync_folder()?;
        Ok(Self {
            file,
            number,
            first,
            salt: header.salt,
        })
    }

    /// Opens segment `number` for reading.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Foreign`], [`Error::NewerFormat`], [`Error::DamagedLog`], or what
    /// the operating system answers.
    pub fn open(folder: &Folder, store_id: [u64; 2], number: u64) -> Result<Self> {
        if !folder.has(&name(number))? {
            return Err(Error::Missing {
                path: folder.join(&name(number)),
                advice: "put it back, or open the store with StoreOptions::salvage(true), which \
                         keeps what the segments before it hold",
            });
        }
        let file = folder.open_file(&name(number), false)?;
        let header = read_header(&file)?;
        let damaged = |at, found| Error::DamagedLog {
            path: file.path().to_path_buf(),
            at,
            found,
        };
        if header.store_id != store_id {
            let found = format!("segment of another store, {:x?}", header.store_id);
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
        bytes.resize(self.len()? as usize, 0);
        let pieces = bytes.par_chunks_mut(PIECE).enumerate();
        let read = |(nth, piece): (usize, &mut [u8])| self.file.read(piece, (nth * PIECE) as u64);
        let lens: Vec<usize> = pieces.map(read).collect::<Result<_>>()?;
        bytes.truncate(lens.iter().sum());
        Ok(())
    }

    /// Makes room up to `end` in the file, in which all behind `at` is free and whose room ends at
    /// `room`, and gives where it ends now.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn make_room(&self, at: u64, end: u64, room: u64) -> Result<u64> {
        if end <= room {
            return Ok(room);
        }
        let room = end.next_multiple_of(EXTENSION);
        let extend = |source| Error::io(self.file.path(), "extend", source);
        self.file.allocate(at, room).map_err(extend)?;
        Ok(room)
    }

    /// Writes bytes into the file, where it has room. Others may write elsewhere at the same time.
    ///
    /// # Errors
    /// What the operating system answers; some of it may have been written.
    pub fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.file.write(bytes, at)
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
    let path = file.path().to_path_buf();
    if len < 8 || header.magic != MAGIC {
        let found = format!("it begins with {:02x?}", &header.magic[..len.min(8)]);
        return Err(Error::Foreign { path, found });
    }
    if header.version > VERSION {
        return Err(Error::NewerFormat {
            path,
            found: header.version,
            supported: VERSION,
        });
    }
    if header.checksum != header.sum() {
        return Err(Error::DamagedLog {
            path,
            at: 0,
            found: "the checksum of the header does not match".into(),
        });
    }
    Ok(header)
}
