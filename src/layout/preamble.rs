//! What the header of each file of a store begins with: manifest, log segment and SST.
//!
//! ```text
//!  0       8         12      16         32
//!  | magic | version | flags | store id | ...
//! ```
//!
//! What ends with its checksum has it in its last eight bytes: XXH3-64 of all bytes before.

use std::path::Path;

use bytemuck::{Pod, Zeroable};
use static_assertions::const_assert_eq;
use xxhash_rust::xxh3::xxh3_64;

use crate::{Error, Result};

/// A kind of file, and the versions of it that this build knows.
#[derive(Debug, Clone, Copy)]
pub struct FileFormat {
    /// First eight bytes of every file of the kind.
    pub magic: [u8; 8],
    /// The version that this build writes, and the latest that it reads.
    pub version: u32,
}

/// See the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Preamble {
    /// That of the [`FileFormat`].
    pub magic: [u8; 8],
    /// Version of the file.
    pub version: u32,
    /// Zero where the kind of file has no flags.
    pub flags: u32,
    /// Random name of the store that the file belongs to.
    pub store_id: [u64; 2],
}

const_assert_eq!(size_of::<Preamble>(), 32);

const CHECKSUM: usize = size_of::<u64>();

/// No build has a version from this one on. Damage of several bytes says so.
const VERSIONS_MAX: u32 = 1 << 16;

impl FileFormat {
    /// What a new file begins with.
    pub const fn preamble(self, flags: u32, store_id: [u64; 2]) -> Preamble {
        Preamble {
            magic: self.magic,
            version: self.version,
            flags,
            store_id,
        }
    }

    /// Checks magic and version of the file at `path` that begins with `bytes`. A version that is cut off passes. A later
    /// one is damage if `bytes` end with the checksum that they have with a version that this build knows, or if it never
    /// will be one.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::NewerFormat`] or [`Error::Damaged`].
    pub fn check(self, bytes: &[u8], path: &Path) -> Result<()> {
        let path = path.to_path_buf();
        if !bytes.starts_with(&self.magic) {
            let found = format!("it begins with {:02x?}", &bytes[..bytes.len().min(8)]);
            return Err(Error::Foreign { path, found });
        }
        let version = bytes[8..].first_chunk().copied().map(u32::from_le_bytes);
        let Some(found) = version.filter(|version| *version > self.version) else {
            return Ok(());
        };
        let mut known = bytes.to_vec();
        let is_sealed = |version: &u32| {
            known[8..12].copy_from_slice(&version.to_le_bytes());
            known.ends_with(&checksum(&known).to_le_bytes())
        };
        if bytes.len() >= size_of::<Preamble>()
            && let Some(version) = (1..=self.version).find(is_sealed)
        {
            return Err(Error::Damaged {
                path,
                what: "version of the file",
                at: 8,
                found: format!("{found}; the checksum is that of version {version}"),
            });
        }
        if found >= VERSIONS_MAX {
            return Err(Error::Damaged {
                path,
                what: "version of the file",
                at: 8,
                found: format!("{found}; versions are below {VERSIONS_MAX}"),
            });
        }
        Err(Error::NewerFormat {
            path,
            found,
            supported: self.version,
        })
    }
}

/// The checksum that `sealed` should end with.
///
/// # Panics
/// If `sealed` is shorter than a checksum.
pub fn checksum(sealed: &[u8]) -> u64 {
    xxh3_64(&sealed[..sealed.len() - CHECKSUM])
}

/// Makes `bytes` end with their checksum. What is in its place is overwritten.
///
/// # Panics
/// If `bytes` are fewer than those of a checksum.
pub fn seal(bytes: &mut [u8]) {
    let start = bytes.len() - CHECKSUM;
    let sum = checksum(bytes).to_le_bytes();
    bytes[start..].copy_from_slice(&sum);
}

#[cfg(test)]
mod tests;
