//! The header of a sorted file, and of a value file.
//!
//! ```text
//!  0       8         12         16         32       40         48
//!  | magic | version | reserved | store id | number | checksum |
//! ```

use std::path::Path;

use bytemuck::{Pod, Zeroable};
use static_assertions::const_assert_eq;

use crate::layout::preamble::{self, FileFormat, Preamble};
use crate::{Error, Result};

/// See the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Header {
    pub preamble: Preamble,
    pub number: u64,
    pub checksum: u64,
}

/// Numbers of files are below this one: their names have twelve digits.
pub const NUMBERS_MAX: u64 = 1_000_000_000_000;

/// Bytes of a header.
pub const HEADER: usize = 48;
const_assert_eq!(size_of::<Header>(), HEADER);

impl Header {
    /// That of file `number`.
    pub fn new(format: FileFormat, store_id: [u64; 2], number: u64) -> Self {
        let mut header = Self {
            preamble: format.preamble(0, store_id),
            number,
            checksum: 0,
        };
        preamble::seal(bytemuck::bytes_of_mut(&mut header));
        header
    }

    /// The header that the file at `path` begins with, if it is a whole one of this format.
    ///
    /// # Errors
    /// [`Error::NewerFormat`], and [`Error::OlderFormat`] if it is a whole one of an older format.
    pub fn read(bytes: &[u8], format: FileFormat, path: &Path) -> Result<Option<Self>> {
        let Ok(header) = bytemuck::try_pod_read_unaligned::<Self>(bytes) else {
            return Ok(None);
        };
        let whole = Self::new(format, header.preamble.store_id, header.number);
        match whole.check(bytes, format, path) {
            Ok(()) => Ok(Some(whole)),
            Err(error) if error.is_no_damage() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// The seed of the checksum of the data block at byte `at`.
    pub fn seed(&self, at: u64) -> u64 {
        self.checksum.wrapping_add(at)
    }

    /// The seed of the checksum of what else stands at byte `at`.
    pub fn end_seed(&self, at: u64) -> u64 {
        !self.seed(at)
    }

    /// Says whether the file at `path` begins with this header.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::NewerFormat`], [`Error::OlderFormat`] or [`Error::Damaged`].
    pub fn check(&self, bytes: &[u8], format: FileFormat, path: &Path) -> Result<()> {
        if bytes == bytemuck::bytes_of(self) {
            return Ok(());
        }
        format.check(bytes, path)?;
        let mut older = *self;
        for version in 1..format.version {
            older.preamble.version = version;
            preamble::seal(bytemuck::bytes_of_mut(&mut older));
            if bytes == bytemuck::bytes_of(&older) {
                return Err(Error::OlderFormat {
                    path: path.to_path_buf(),
                    found: version,
                    supported: format.version,
                });
            }
        }
        let expected = bytemuck::bytes_of(self);
        Err(Error::Damaged {
            path: path.to_path_buf(),
            what: "header of the file",
            at: 0,
            found: format!("{bytes:02x?}; expected {expected:02x?}"),
        })
    }
}
