//! Copies of the levels in device memory, on which the kernels probe and claim.

use std::ops::Range;

use std::sync::Arc;

use bytemuck::Zeroable;

use super::registration::Registration;
use crate::Result;
use crate::engine::cuda::kernels::declarations::SPLIT_BUCKETS;
use crate::engine::cuda::kernels::{Grid, Kernels};
use crate::gpu::abi::TableView;
use crate::gpu::budget::{IndexBudget, Quota};
use crate::gpu::memory::Address;
use crate::gpu::memory::{DeviceMemory, copy_in, fill, free_memory, wait};
use crate::gpu::stream::Stream;
use crate::layout::superblock::DIRECTORY;
use crate::layout::{RESERVED_BUCKET_STRIDE, RESERVED_BUCKETS};
use crate::pm::{Mapping, Medium};
use crate::table::Table;
use crate::width::{to_usize, u32_of};

/// What copies are made of, and with what.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub table: &'a Table<Mapping>,
    pub registration: &'a Registration,
    pub kernels: &'a Kernels,
    pub stream: &'a Stream,
}

/// The copies of a table's levels, as far as the device has room for them.
pub struct Mirror {
    wanted: bool,
    quota: Arc<Quota>,
    levels: [Option<DeviceMemory>; DIRECTORY],
    reserved: Option<DeviceMemory>,
    /// A level that is not there yet, and its copy, if there is room for one.
    coming: Option<(u32, Option<DeviceMemory>)>,
}

impl Mirror {
    /// No copies; ever, unless they are `wanted`.
    pub fn new(wanted: bool, budget: &IndexBudget) -> Self {
        Self {
            wanted,
            quota: Arc::clone(&budget.copies),
            levels: [const { None }; DIRECTORY],
            reserved: None,
            coming: None,
        }
    }

    /// Whether a copy of `len` bytes would find room. Says yes where no copies are wanted.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn has_room(&self, len: u64) -> Result<bool> {
        if !self.wanted {
            return Ok(true);
        }
        Ok(len <= self.quota.left() && len <= free_memory()?)
    }

    /// Copies all live levels and gives the view that a launch has of the table.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) when copying fails.
    pub fn add_table(&mut self, source: Source) -> Result<TableView> {
        let table = source.table;
        let shape = &table.shape;
        let levels = table.levels.live();
        let mut view = TableView::zeroed();
        view.file = table.medium.base() as Address;
        view.hash_seed = table.hash_seed;
        view.key_size = u32_of(shape.key_size);
        view.value_size = u32_of(shape.value_size);
        view.slots = shape.slots;
        view.levels = shape.levels;
        view.locations = shape.locations;
        view.bottom_level = levels.bottom;
        view.top_level = levels.top;
        view.bucket_size = u32_of(shape.bucket_size);
        view.record_stride = u32_of(shape.record_stride);
        view.checksum_offset = u32_of(shape.checksum_offset().unwrap_or(0));
        view.reserved_probe = self.add_reserved(source)?;
        for level in levels.bottom..=levels.top {
            let offset = table.levels.offset(level);
            view.level_offset[level as usize] = offset;
            // A recovery scan has copied the levels before.
            if self.levels[level as usize].is_none() {
                self.levels[level as usize] = self.copy_level(source, level)?;
            }
            view.level_probe[level as usize] = self.probe(table, level, offset);
        }
        Ok(view)
    }

    /// Makes the copy of a level that has just been added at `offset`, all of it zero, and gives
    /// the address where it is to be probed. A level for which there is no room is probed in the
    /// file.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) when the device fails.
    pub fn add_level(
        &mut self,
        table: &Table<Mapping>,
        stream: &Stream,
        level: u32,
        offset: u64,
    ) -> Result<Address> {
        self.levels[level as usize] = match self.coming.take() {
            Some((coming, copy)) if coming == level => copy,
            _ if self.wanted => zeroed_level(&self.quota, table, stream, level)?,
            _ => None,
        };
        Ok(self.probe(table, level, offset))
    }

    /// Whether the copy of a coming `level` has still to be made.
    pub fn awaits(&self, level: u32) -> bool {
        let is_ready = self
            .coming
            .as_ref()
            .is_some_and(|(coming, _)| *coming == level);
        self.wanted && !is_ready
    }

    /// Keeps the copy of a level until it is [added](Self::add_level).
    pub fn expect(&mut self, level: u32, copy: Option<DeviceMemory>) {
        self.coming = Some((level, copy));
    }

    /// Where `level`, which lies at `offset`, is probed.
    fn probe(&self, table: &Table<Mapping>, level: u32, offset: u64) -> Address {
        match &self.levels[level as usize] {
            Some(copy) => copy.address(),
            None => {
                if self.wanted {
                    tracing::info!(level, "no room in device memory; probing the file");
                }
                table.medium.base() as Address + offset
            }
        }
    }

    /// Copies the buckets at these offsets anew, which the host has changed.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) when copying fails.
    pub fn refresh(&self, source: Source, buckets: &[(u32, u64)]) -> Result<()> {
        let table = source.table;
        for &(level, bucket) in buckets {
            if let Some(copy) = &self.levels[level as usize] {
                let within = bucket - table.levels.offset(level);
                let to = copy.address() + within;
                let len = table.shape.bucket_size;
                source.copy_file(bucket..bucket + len, to)?;
                source.split(to, 1, len)?;
            }
        }
        Ok(wait(source.stream)?)
    }

    /// Copies the reserved buckets and gives the address of each.
    fn add_reserved(&mut self, source: Source) -> Result<[Address; 2]> {
        let len = 2 * RESERVED_BUCKET_STRIDE;
        self.reserved = self.copy(source, RESERVED_BUCKETS, len, 2, RESERVED_BUCKET_STRIDE)?;
        let file = source.table.medium.base() as Address + RESERVED_BUCKETS;
        let first = self.reserved.as_ref().map_or(file, DeviceMemory::address);
        Ok([first, first + RESERVED_BUCKET_STRIDE])
    }

    /// Frees the copy of a level that no launch uses any more.
    pub fn remove_level(&mut self, level: u32) {
        self.levels[level as usize] = None;
    }

    fn copy_level(&self, source: Source, level: u32) -> Result<Option<DeviceMemory>> {
        let table = source.table;
        let (offset, len) = (table.levels.offset(level), level_len(table, level));
        self.copy(source, offset, len, 1 << level, table.shape.bucket_size)
    }

    /// A copy of `len` bytes of the file from `offset` on, which begin with `count` buckets, each `stride`
    /// bytes behind the one before.
    fn copy(
        &self,
        source: Source,
        offset: u64,
        len: u64,
        count: u64,
        stride: u64,
    ) -> Result<Option<DeviceMemory>> {
        if !self.wanted {
            return Ok(None);
        }
        let Ok(copy) = DeviceMemory::new(&self.quota, to_usize(len)) else {
            return Ok(None);
        };
        source.copy_file(offset..offset + len, copy.address())?;
        source.split(copy.address(), count, stride)?;
        wait(source.stream)?;
        Ok(Some(copy))
    }
}

impl Source<'_> {
    /// Puts copies of these bytes of the file on the stream; there must be room for them at `to`.
    fn copy_file(&self, bytes: Range<u64>, to: Address) -> Result<()> {
        let medium = &self.table.medium;
        assert!(bytes.end <= medium.len(), "{bytes:?} of the file");
        for part in self.registration.cut(bytes.clone()) {
            // SAFETY: the range is mapped. It is copied by the device, and nothing changes it
            // meanwhile: the engine is the only one who stores, and its caller is alone in it.
            unsafe {
                let from = medium.base().wrapping_add(to_usize(part.start));
                let from = std::slice::from_raw_parts(from, to_usize(part.end - part.start));
                copy_in(self.stream, to + (part.start - bytes.start), from)?;
            }
        }
        Ok(())
    }

    /// Puts the slots of copied buckets in the order in which kernels probe copies.
    fn split(&self, at: Address, count: u64, stride: u64) -> Result<()> {
        let arguments = (at, count, u32_of(stride), self.table.shape.slots);
        // SAFETY: the copy is that long, and nobody else has it yet.
        unsafe {
            self.kernels
                .launch(self.stream, SPLIT_BUCKETS, Grid::Warps(count), arguments)
        }
    }
}

/// The copy of a level in which nothing stands yet, or `None` if there is no room.
///
/// # Errors
/// [`Error::Gpu`](crate::Error::Gpu) when the device fails.
pub fn zeroed_level(
    quota: &Arc<Quota>,
    table: &Table<Mapping>,
    stream: &Stream,
    level: u32,
) -> Result<Option<DeviceMemory>> {
    let Ok(copy) = DeviceMemory::new(quota, to_usize(level_len(table, level))) else {
        return Ok(None);
    };
    // SAFETY: the block is as long.
    unsafe { fill(stream, copy.address(), 0, copy.len())? };
    wait(stream)?;
    Ok(Some(copy))
}

/// Bytes of the copy of a level.
pub fn level_len(table: &Table<Mapping>, level: u32) -> u64 {
    table.shape.buckets_len(level) + table.shape.overflow_len(level)
}
