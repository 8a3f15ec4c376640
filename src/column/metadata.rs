//! The metadata block: what keys and values mean, the version of the index, and bytes of the user.
//!
//! Two copies, a page each, as those of the superblock: a change goes to the copy that does not hold, so a
//! torn write leaves the other one.

#[cfg(test)]
mod tests;

use std::fmt;

use bytemuck::{Pod, Zeroable};
use serde::Serialize;
use static_assertions::const_assert_eq;
use xxhash_rust::xxh3::xxh3_64;

use super::{COLUMN_NAME_MAX, COLUMNS_MAX, Column, ColumnRole, DType, RANK_MAX, check};

/// What the counters of changes, of checkpoints and of versions never reach, and an attacker might set them to
/// so that they overflow.
#[doc(hidden)]
pub const MAX_CHANGES: u64 = 1 << 63;

/// Most bytes of the user.
pub const USER_METADATA_MAX: usize = 2048;

/// What the bytes of a key are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KeyKind {
    /// Opaque bytes.
    #[default]
    Bytes,
    /// An unsigned integer, little endian, of 8 or 16 bytes.
    Unsigned,
    /// A signed integer in two's complement, little endian, of 8 or 16 bytes.
    Signed,
}

impl KeyKind {
    /// The number of it in the file.
    const fn code(self) -> u32 {
        match self {
            Self::Bytes => 1,
            Self::Unsigned => 2,
            Self::Signed => 3,
        }
    }

    /// Whether keys of so many bytes can be of this kind.
    #[doc(hidden)]
    pub const fn fits(self, key_size: u64) -> bool {
        matches!(self, Self::Bytes) || key_size == 8 || key_size == 16
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::Unsigned => "unsigned",
            Self::Signed => "signed",
        })
    }
}

/// What the file of an index says of itself, as of one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Metadata {
    /// What the bytes of a key are.
    pub key_kind: KeyKind,
    /// The columns of a value, in the order of their offsets; none if nobody has named them.
    pub columns: Vec<Column>,
    /// Number of the state that was published last, see `Index::metadata`.
    pub version: u64,
    /// What `Index::set_user_metadata` was given last; empty before.
    pub user: Vec<u8>,
}

impl Metadata {
    /// That of a new index.
    #[doc(hidden)]
    pub fn of_new(key_kind: KeyKind, columns: Vec<Column>) -> Self {
        Self {
            key_kind,
            columns,
            version: 1,
            user: Vec::new(),
        }
    }
}

/// A column as it stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ColumnEntry {
    /// UTF-8, then zeros.
    pub name: [u8; COLUMN_NAME_MAX + 1],
    /// Type of the elements.
    pub dtype: u8,
    /// What it is for.
    pub role: u8,
    /// Dimensions.
    pub rank: u8,
    /// Zero.
    pub reserved: u8,
    /// The dimensions, then zeros.
    pub dims: [u32; RANK_MAX],
    /// First byte in the value.
    pub offset: u32,
    /// Bytes: those of an element times all dimensions.
    pub len: u32,
    /// Zero.
    pub reserved_word: u32,
}

const_assert_eq!(size_of::<ColumnEntry>(), 64);
const_assert_eq!(std::mem::offset_of!(ColumnEntry, dtype), 32);
const_assert_eq!(std::mem::offset_of!(ColumnEntry, dims), 36);
const_assert_eq!(std::mem::offset_of!(ColumnEntry, offset), 52);
const_assert_eq!(std::mem::offset_of!(ColumnEntry, len), 56);

/// A copy of the metadata block as it stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct MetadataPage {
    /// Grows by one with every change; the valid copy with the greater one holds.
    pub generation: u64,
    /// [`Metadata::version`].
    pub version: u64,
    /// What the bytes of a key are.
    pub key_kind: u32,
    /// Valid entries of `columns`.
    pub column_count: u32,
    /// Valid bytes of `user`.
    pub user_len: u32,
    /// Zero.
    pub reserved: u32,
    /// The columns of a value, then zeros.
    pub columns: [ColumnEntry; COLUMNS_MAX],
    /// Bytes of the user, then zeros.
    pub user: [u8; USER_METADATA_MAX],
    /// Zero.
    pub unused: [u8; 984],
    /// XXH3 of all bytes before this field.
    pub checksum: u64,
}

const_assert_eq!(size_of::<MetadataPage>(), 4096);
const_assert_eq!(std::mem::offset_of!(MetadataPage, key_kind), 16);
const_assert_eq!(std::mem::offset_of!(MetadataPage, columns), 32);
const_assert_eq!(std::mem::offset_of!(MetadataPage, user), 1056);
const_assert_eq!(std::mem::offset_of!(MetadataPage, unused), 3104);
const_assert_eq!(std::mem::offset_of!(MetadataPage, checksum), 4088);

impl MetadataPage {
    /// The copy of this generation. The columns fit the value, and the user's bytes are not too many.
    #[doc(hidden)]
    pub fn new(metadata: &Metadata, generation: u64) -> Self {
        let mut page = Self::zeroed();
        page.generation = generation;
        page.version = metadata.version;
        page.key_kind = metadata.key_kind.code();
        let number = |number: usize| u32::try_from(number).expect("they fit a value");
        page.column_count = number(metadata.columns.len());
        page.user_len = number(metadata.user.len());
        for (entry, column) in page.columns.iter_mut().zip(&metadata.columns) {
            entry.name[..column.name().len()].copy_from_slice(column.name().as_bytes());
            entry.dtype = column.dtype().code();
            entry.role = column.role().code();
            for (dim, &size) in entry.dims.iter_mut().zip(column.shape()) {
                *dim = number(size);
                entry.rank += 1;
            }
            entry.offset = number(column.offset());
            entry.len = number(column.len().unwrap_or_default());
        }
        page.user[..metadata.user.len()].copy_from_slice(&metadata.user);
        page.seal();
        page
    }

    /// Sets the checksum; to be called after the last one of the fields was set, before writing.
    pub fn seal(&mut self) {
        self.checksum = self.sum();
    }

    fn sum(&self) -> u64 {
        xxh3_64(&bytemuck::bytes_of(self)[..std::mem::offset_of!(Self, checksum)])
    }

    /// Whether all of this copy was written, as far as its checksum tells.
    pub fn is_whole(&self) -> bool {
        self.checksum == self.sum()
    }

    /// Which of the two copies this generation is written to.
    pub fn copy(&self) -> usize {
        usize::from(!self.generation.is_multiple_of(2))
    }

    /// The copy that holds, and whether the other one is whole, too.
    #[doc(hidden)]
    pub fn find(copies: &[Self; 2]) -> Option<(&Self, bool)> {
        let whole = || copies.iter().filter(|copy| copy.is_whole());
        let newest = whole().max_by_key(|copy| copy.generation)?;
        Some((newest, whole().count() == copies.len()))
    }

    /// What the copy says of keys and values of these sizes; 0 for variable length.
    ///
    /// # Errors
    /// What was found that no index has.
    #[doc(hidden)]
    pub fn decode(&self, key_size: u64, value_size: u64) -> Result<Metadata, String> {
        if self.generation >= MAX_CHANGES || self.version >= MAX_CHANGES {
            return Err(format!(
                "generation {} and version {}",
                self.generation, self.version
            ));
        }
        let kinds = [KeyKind::Bytes, KeyKind::Unsigned, KeyKind::Signed];
        let key_kind = kinds
            .into_iter()
            .find(|kind| kind.code() == self.key_kind && kind.fits(key_size))
            .ok_or_else(|| format!("key kind {} of {key_size} bytes", self.key_kind))?;
        let entries = self.columns.get(..self.column_count as usize);
        let entries = entries.ok_or_else(|| format!("{} columns", self.column_count))?;
        let columns = entries.iter().map(ColumnEntry::decode);
        let columns = columns.collect::<Result<Vec<Column>, String>>()?;
        let value_size = usize::try_from(value_size).map_err(|error| error.to_string())?;
        check(&columns, value_size)
            .map_err(|(found, expected)| format!("{found}; expected {expected}"))?;
        let user = self.user.get(..self.user_len as usize);
        let user = user.ok_or_else(|| format!("{} bytes of the user", self.user_len))?;
        Ok(Metadata {
            key_kind,
            columns,
            version: self.version,
            user: user.to_vec(),
        })
    }
}

impl ColumnEntry {
    fn decode(&self) -> Result<Column, String> {
        let len = self.name.iter().position(|&byte| byte == 0);
        let name = &self.name[..len.unwrap_or(self.name.len())];
        let name = str::from_utf8(name)
            .map_err(|error| format!("a column of the name {name:02x?}: {error}"))?;
        let wrong = |what: &str, found: u32| format!("column {name:?} of {what} {found}");
        let dtype = DType::from_code(self.dtype);
        let dtype = dtype.ok_or_else(|| wrong("type", self.dtype.into()))?;
        let role = ColumnRole::from_code(self.role);
        let role = role.ok_or_else(|| wrong("role", self.role.into()))?;
        let dims = self.dims.get(..usize::from(self.rank));
        let dims = dims.ok_or_else(|| wrong("rank", self.rank.into()))?;
        let shape: Vec<usize> = dims.iter().map(|&dim| dim as usize).collect();
        let column = Column::new(name, dtype, shape, self.offset as usize).with_role(role);
        match column.len() {
            Some(len) if len == self.len as usize => Ok(column),
            _ => Err(wrong("length", self.len)),
        }
    }
}
