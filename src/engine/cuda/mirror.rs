//! Copies of the levels in device memory, on which the kernels probe and claim.

use bytemuck::Zeroable;
use cust::stream::Stream;

use super::memory::{DeviceMemory, copy_in, free_memory, wait};
use super::view::{Address, TableView};
use crate::Result;
use crate::index::table::Table;
use crate::layout::superblock::DIRECTORY;
use crate::layout::{RESERVED_BUCKET_STRIDE, RESERVED_BUCKETS};
use crate::pm::{Mapping, Medium};

/// The copies of a table's levels, as far as the device has room for them.
pub struct Mirror {
    wanted: bool,
    /// Most bytes that the copies may have.
    most: u64,
    levels: [Option<DeviceMemory>; DIRECTORY],
    reserved: Option<DeviceMemory>,
}

impl Mirror {
    /// No copies; ever, unless they are `wanted`, and never of more than `most` bytes if that is
    /// given.
    pub fn new(wanted: bool, most: Option<u64>) -> Self {
        Self {
            wanted,
            most: most.unwrap_or(u64::MAX),
            levels: [const { None }; DIRECTORY],
            reserved: None,
        }
    }

    /// Bytes of the copies.
    pub fn len(&self) -> u64 {
        let copies = self.levels.iter().chain([&self.reserved]).flatten();
        copies.map(|copy| copy.len() as u64).sum()
    }

    /// Whether a copy of `len` bytes would find room if `others` of the bound were taken. Says yes
    /// where no copies are wanted.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn has_room(&self, len: u64, others: u64) -> Result<bool> {
        if !self.wanted {
            return Ok(true);
        }
        let bytes = self.len().saturating_add(len).saturating_add(others);
        Ok(bytes <= self.most && len <= free_memory()?)
    }

    /// Copies all live levels and gives the view that a launch has of the table.
    ///
    /// # Errors
    /// As [`add_level`](Self::add_level).
    pub fn add_table(&mut self, table: &Table<Mapping>, stream: &Stream) -> Result<TableView> {
        let shape = &table.shape;
        let levels = table.directory.levels();
        let mut view = TableView::zeroed();
        view.file = table.medium.base() as Address;
        view.hash_seed = table.hash_seed;
        view.key_size = shape.key_size as u32;
        view.value_size = shape.value_size as u32;
        view.slots = shape.slots;
        view.levels = shape.levels;
        view.locations = shape.locations;
        view.bottom_level = levels.bottom;
        view.top_level = levels.top;
        view.bucket_size = shape.bucket_size as u32;
        view.record_stride = shape.record_stride as u32;
        view.reserved_probe = self.add_reserved(table, stream)?;
        for level in levels.bottom..=levels.top {
            let offset = table.directory.offset(level);
            view.level_offset[level as usize] = offset;
            view.level_probe[level as usize] = self.add_level(table, stream, level, offset)?;
        }
        Ok(view)
    }

    /// Copies `level`, which lies at `offset`, and gives the address where it is to be probed.
    /// A level for which there is no room is probed in the file.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) when copying fails.
    pub fn add_level(
        &mut self,
        table: &Table<Mapping>,
        stream: &Stream,
        level: u32,
        offset: u64,
    ) -> Result<Address> {
        let len = level_len(table, level);
        let copy = self.copy(table, stream, offset, len)?;
        let file = table.medium.base() as Address + offset;
        let address = copy.as_ref().map_or(file, DeviceMemory::address);
        if copy.is_none() && self.wanted {
            tracing::info!(
                level,
                "no room in device memory for this level; probing the file"
            );
        }
        self.levels[level as usize] = copy;
        Ok(address)
    }

    /// Copies the reserved buckets and gives the address of each.
    fn add_reserved(&mut self, table: &Table<Mapping>, stream: &Stream) -> Result<[Address; 2]> {
        self.reserved = self.copy(table, stream, RESERVED_BUCKETS, 2 * RESERVED_BUCKET_STRIDE)?;
        let file = table.medium.base() as Address + RESERVED_BUCKETS;
        let first = self.reserved.as_ref().map_or(file, DeviceMemory::address);
        Ok([first, first + RESERVED_BUCKET_STRIDE])
    }

    /// Frees the copy of a level that no launch uses any more.
    pub fn remove_level(&mut self, level: u32) {
        self.levels[level as usize] = None;
    }

    fn copy(
        &self,
        table: &Table<Mapping>,
        stream: &Stream,
        offset: u64,
        len: u64,
    ) -> Result<Option<DeviceMemory>> {
        if !self.wanted || self.len().saturating_add(len) > self.most {
            return Ok(None);
        }
        let Ok(copy) = DeviceMemory::new(len as usize) else {
            return Ok(None);
        };
        debug_assert!(offset + len <= table.medium.len());
        // SAFETY: the range is mapped. It is copied by the device, and nothing changes it
        // meanwhile: the engine is the only one who stores, and its caller is alone in it.
        unsafe {
            let bytes = std::slice::from_raw_parts(
                table.medium.base().wrapping_add(offset as usize),
                len as usize,
            );
            copy_in(stream, copy.address(), bytes)?;
        }
        wait(stream)?;
        Ok(Some(copy))
    }
}

/// Bytes of the copy of a level.
pub fn level_len(table: &Table<Mapping>, level: u32) -> u64 {
    table.shape.buckets_len(level) + table.shape.overflow_len(level)
}
