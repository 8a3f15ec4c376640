//! What a store is: the file `MANIFEST`, which is replaced as a whole.
//!
//! ```text
//!  0       8         12      16         32              40             48         56
//!  | magic | version | flags | store id | first segment | last segment | sequence | ...
//!  56            60      64
//!  | name length | files | name of the merge operator | files ... | checksum |
//!
//!  0        8       16      20         24
//!  | number | bytes | level | reserved |      a file
//! ```

use std::collections::HashSet;
use std::path::Path;

use bytemuck::{Pod, Zeroable};
use static_assertions::const_assert_eq;
use xxhash_rust::xxh3::xxh3_64;

use crate::pm::Folder;
use crate::spill::LevelFile;
use crate::{Error, Result};

/// First eight bytes of every manifest.
const MAGIC: [u8; 8] = *b"GPHSTOR\n";

/// The version of the directory that this build writes, and the latest that it reads.
const VERSION: u32 = 1;

/// Name of the file.
pub const NAME: &str = "MANIFEST";

/// Name that the next manifest has until it takes the place of the last one.
pub const NEXT_NAME: &str = "MANIFEST.next";

/// Longest name of a merge operator, in bytes.
pub const LONGEST_NAME: usize = 1024;

/// Numbers of segments and sequence numbers are below this: what is counted up does not overflow.
pub const MOST: u64 = 1 << 62;

/// Most files below the table.
pub const MOST_FILES: usize = 1 << 20;

/// The directory is whole; without it, a creation was cut short.
const COMPLETE: u32 = 1;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: u32,
    flags: u32,
    store_id: [u64; 2],
    first_segment: u64,
    last_segment: u64,
    sequence: u64,
    name_len: u32,
    files: u32,
}

const_assert_eq!(size_of::<Header>(), 64);

const HEADER: usize = size_of::<Header>();

/// What the manifest says of a file below the table.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct File {
    number: u64,
    len: u64,
    level: u32,
    reserved: u32,
}

const_assert_eq!(size_of::<File>(), 24);

/// What the manifest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Random name of the store, which its log segments bear, too.
    pub store_id: [u64; 2],
    /// Whether the creation of the store came to its end.
    pub complete: bool,
    /// The oldest log segment that a recovery needs.
    pub first_segment: u64,
    /// The newest log segment.
    pub last_segment: u64,
    /// All requests up to this sequence number are in the index.
    pub sequence: u64,
    /// Name of the merge operator; empty for none.
    pub merge_operator: String,
    /// The files below the table, the newest of level 0 last.
    pub files: Vec<LevelFile>,
}

impl Manifest {
    fn to_bytes(&self) -> Vec<u8> {
        let header = Header {
            magic: MAGIC,
            version: VERSION,
            flags: u32::from(self.complete) * COMPLETE,
            store_id: self.store_id,
            first_segment: self.first_segment,
            last_segment: self.last_segment,
            sequence: self.sequence,
            name_len: self.merge_operator.len() as u32,
            files: self.files.len() as u32,
        };
        let file = |file: &LevelFile| File {
            number: file.number,
            len: file.len,
            level: file.level,
            reserved: 0,
        };
        let files: Vec<File> = self.files.iter().map(file).collect();
        let mut bytes = bytemuck::bytes_of(&header).to_vec();
        bytes.extend_from_slice(self.merge_operator.as_bytes());
        bytes.extend_from_slice(bytemuck::cast_slice(&files));
        bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::NewerFormat`] or [`Error::Damaged`].
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let path = path.to_path_buf();
        if bytes.get(..8) != Some(&MAGIC) {
            let found = format!("it begins with {:02x?}", &bytes[..bytes.len().min(8)]);
            return Err(Error::Foreign { path, found });
        }
        if let Some(version) = bytes.get(8..12) {
            let found = u32::from_le_bytes(version.try_into().expect("four bytes"));
            if found > VERSION {
                let supported = VERSION;
                return Err(Error::NewerFormat {
                    path,
                    found,
                    supported,
                });
            }
        }
        let damaged = |what, at: usize, found: String| Error::Damaged {
            path: path.clone(),
            what,
            at: at as u64,
            found,
        };
        let cut = || {
            let found = format!("the file has only {} bytes", bytes.len());
            damaged("manifest", bytes.len(), found)
        };
        let header: Header = bytemuck::pod_read_unaligned(bytes.get(..HEADER).ok_or_else(cut)?);
        let name_len = header.name_len as usize;
        if name_len > LONGEST_NAME {
            let found = format!("{name_len} bytes; at most {LONGEST_NAME} are possible");
            return Err(damaged("length of the merge operator's name", 56, found));
        }
        let name_end = HEADER + name_len;
        let end = name_end + header.files as usize * size_of::<File>();
        let sum = bytes.get(end..end + 8).ok_or_else(cut)?;
        let (found, expected) = (sum, xxh3_64(&bytes[..end]).to_le_bytes());
        if found != expected {
            let found = format!("{found:02x?}; expected {expected:02x?}");
            return Err(damaged("checksum of the manifest", end, found));
        }
        let name = String::from_utf8(bytes[HEADER..name_end].to_vec());
        let (files, _) = bytes[name_end..end].as_chunks::<{ size_of::<File>() }>();
        let file = |bytes: &[u8; size_of::<File>()]| {
            let File {
                number, len, level, ..
            } = bytemuck::pod_read_unaligned(bytes);
            LevelFile { number, level, len }
        };
        let manifest = Self {
            store_id: header.store_id,
            complete: header.flags & COMPLETE != 0,
            first_segment: header.first_segment,
            last_segment: header.last_segment,
            sequence: header.sequence,
            merge_operator: name.map_err(|error| {
                damaged("name of the merge operator", HEADER, error.to_string())
            })?,
            files: files.iter().map(file).collect(),
        };
        if header.version == 0 || header.flags & !COMPLETE != 0 {
            let found = format!("version {}, flags {:#x}", header.version, header.flags);
            return Err(damaged("version and flags", 8, found));
        }
        if manifest.first_segment > manifest.last_segment {
            let found = format!("{} to {}", manifest.first_segment, manifest.last_segment);
            return Err(damaged("numbers of the log segments", 32, found));
        }
        if manifest.last_segment >= MOST || manifest.sequence >= MOST {
            let found = format!(
                "segment {}, sequence number {}; both are below {MOST}",
                manifest.last_segment, manifest.sequence
            );
            return Err(damaged("last segment and sequence number", 40, found));
        }
        let numbers: HashSet<u64> = manifest.files.iter().map(|file| file.number).collect();
        let is_sound = |file: &LevelFile| file.number < MOST;
        if numbers.len() != manifest.files.len() || !manifest.files.iter().all(is_sound) {
            let found = format!("{:?}", manifest.files);
            return Err(damaged("files below the table", name_end, found));
        }
        Ok(manifest)
    }

    /// Reads the manifest of a folder.
    ///
    /// # Errors
    /// Those of [`parse`](Self::parse), and what the operating system answers.
    pub fn read(folder: &Folder) -> Result<Self> {
        let file = folder.open_file(NAME, false)?;
        let longest = HEADER + LONGEST_NAME + MOST_FILES * size_of::<File>() + 8;
        let len = file.len()?.min(longest as u64);
        let mut bytes = vec![0; len as usize];
        let len = file.read(&mut bytes, 0)?;
        Self::parse(&bytes[..len], file.path())
    }

    /// Puts this manifest in the place of the folder's last one, atomically and durably.
    ///
    /// # Errors
    /// What the operating system answers. A crash then may leave this one or the last one.
    pub fn write(&self, folder: &Folder) -> Result<()> {
        let mut file = folder.create_file(NEXT_NAME)?;
        file.write(&self.to_bytes(), 0)?;
        file.sync()?;
        file.rename(&folder.join(NAME))?;
        file.sync_folder()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            store_id: [3, 4],
            complete: true,
            first_segment: 5,
            last_segment: 7,
            sequence: 1 << 40,
            merge_operator: "sum".into(),
            files: vec![
                LevelFile {
                    number: 9,
                    level: 2,
                    len: 4096,
                },
                LevelFile {
                    number: 12,
                    level: 0,
                    len: 77,
                },
            ],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::at(folder.path().to_path_buf(), None);
        manifest().write(&folder).unwrap();
        let changed = Manifest {
            sequence: 9,
            ..manifest()
        };
        changed.write(&folder).unwrap();
        assert_eq!(Manifest::read(&folder).unwrap(), changed);
        assert_eq!(folder.names().unwrap(), [NAME]);
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_noticed() {
        let bytes = manifest().to_bytes();
        let path = Path::new("MANIFEST");
        assert_eq!(Manifest::parse(&bytes, path).unwrap(), manifest());
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = Manifest::parse(&bytes, path).unwrap_err();
            let told = match bit / 8 {
                0..8 => matches!(error, Error::Foreign { .. }),
                8..12 if bit != 64 => matches!(error, Error::NewerFormat { .. }),
                _ => matches!(error, Error::Damaged { .. }),
            };
            assert!(told, "bit {bit}: {error}");
        }
        for len in 0..bytes.len() {
            assert!(Manifest::parse(&bytes[..len], path).is_err(), "{len} bytes");
        }
    }
}
