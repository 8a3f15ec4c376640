//! The recovery scan on the GPU: one pass over the levels, copied to device memory.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::CudaEngine;
use super::kernels::declarations::RECOVERY_SCAN;
use super::kernels::{Grid, WARP};
use super::stream::BatchStream;
use super::table::{DeviceTable, Mirror, Prepared, Source};
use crate::Result;
use crate::gpu::abi::{
    REPAIR_DUPLICATE, REPAIR_THAW, RecordRange, RecoveryScanFindings, RecoveryScanView, Repair,
    TableView,
};
use crate::gpu::memory::{DeviceMemory, copy_in, copy_out, fill, wait};
use crate::layout::RecordWord;
use crate::layout::bucket::SlotAddr;
use crate::pm::{Mapping, Medium};
use crate::table::Table;
use crate::table::alloc::arena::ReachableRecords;
use crate::table::recovery::scan::{Findings, Fix};
use crate::width::to_usize;

/// Most slots to repair that a scan lists. A crash leaves one for each operation that was under
/// way; more than this is left to the CPU.
const REPAIRS_MAX: usize = 1 << 20;

/// Most repaired buckets that are copied to the device one by one; with more, all levels are copied
/// again.
const REFRESHED_BUCKETS_MAX: usize = 4096;

impl CudaEngine {
    /// Does what [`Table::scan`] does, before the table is attached; `None` if something is there
    /// that only the CPU's scan can tell in full.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub(crate) fn recovery_scan(
        &mut self,
        table: &Table<Mapping>,
        reachable: &ReachableRecords,
    ) -> Result<Option<Findings>> {
        if table.shape.checksums {
            // They are compared with all values, which are in the host's memory.
            return Ok(None);
        }
        let _entered = self.service.device().enter()?;
        // No page goes back to the file system between here and the attaching.
        table.set_pinned(true);
        let scanned = self.scan_pinned(table, reachable);
        // With damage the file is refused: nobody attaches the table, and its mapping ends before the engine does.
        if !matches!(&scanned, Ok(Some(found)) if found.damage.is_empty()) {
            self.prepared = None;
            table.set_pinned(false);
        }
        scanned
    }

    fn scan_pinned(
        &mut self,
        table: &Table<Mapping>,
        reachable: &ReachableRecords,
    ) -> Result<Option<Findings>> {
        let (options, budget) = (self.service.options(), self.service.budget());
        let Prepared {
            kernels,
            registration,
            ..
        } = DeviceTable::prepare(self.service.device(), options, table)?;
        let started = Instant::now();
        let batch_stream = BatchStream::new(budget)?;
        let stream = &batch_stream.stream;
        let mut copies = Mirror::new(true, budget);
        let mut view = copies.add_table(Source {
            table,
            registration: &registration,
            kernels: &kernels,
            stream,
        })?;
        view.file_len = table.medium.len();
        tracing::debug!(took = ?started.elapsed(), "copied the levels to the device");
        let started = Instant::now();

        let ranges: Vec<RecordRange> = table
            .arena
            .extents()
            .iter()
            .map(|extent| RecordRange {
                offset: extent.offset,
                count: extent.count,
                first_ordinal: extent.first,
            })
            .collect();
        let device_ranges = DeviceMemory::new(&budget.buffers, size_of_val(&ranges[..]))?;
        let words = reachable.words();
        let device_reachable = DeviceMemory::new(&budget.buffers, words.len() * 8)?;
        let device_repairs = DeviceMemory::new(&budget.buffers, REPAIRS_MAX * size_of::<Repair>())?;
        let device_findings =
            DeviceMemory::new(&budget.buffers, size_of::<RecoveryScanFindings>())?;
        let scan = RecoveryScanView {
            ranges: device_ranges.address(),
            reachable: device_reachable.address(),
            repairs: device_repairs.address(),
            repair_capacity: REPAIRS_MAX as u64,
            range_count: u32::try_from(ranges.len()).expect("a file has few extents"),
            reserved: 0,
        };
        let mut found = RecoveryScanFindings::default();
        // SAFETY: the blocks are as long as is said here, and live until the wait.
        unsafe {
            let ranges = bytemuck::cast_slice(&ranges);
            copy_in(stream, device_ranges.address(), ranges)?;
            fill(
                stream,
                device_reachable.address(),
                0,
                device_reachable.len(),
            )?;
            fill(stream, device_findings.address(), 0, device_findings.len())?;
            // A level that is being emptied comes last: its items are duplicates if they also
            // stand above.
            for level in (view.bottom_level..=view.top_level).rev() {
                let grid = Grid::Warps((1u64 << level).div_ceil(u64::from(WARP / view.slots)));
                let arguments = (view, level, scan, device_findings.address());
                kernels.launch(stream, RECOVERY_SCAN, grid, arguments)?;
            }
            let found = bytemuck::bytes_of_mut(&mut found);
            copy_out(stream, found, device_findings.address())?;
        }
        wait(stream)?;
        tracing::debug!(took = ?started.elapsed(), "scanned the levels");
        let prepared = self.prepared.insert(Prepared {
            kernels,
            registration,
            mirror: None,
        });
        if found.damage != 0 || found.repairs > REPAIRS_MAX as u64 {
            return Ok(None);
        }

        let mut repairs = vec![Repair { at: 0, kind: 0 }; to_usize(found.repairs)];
        let mut copied = vec![0u64; words.len()];
        // SAFETY: as above.
        unsafe {
            let repairs = bytemuck::cast_slice_mut(&mut repairs);
            copy_out(stream, repairs, device_repairs.address())?;
            let copied = bytemuck::cast_slice_mut(&mut copied);
            copy_out(stream, copied, device_reachable.address())?;
        }
        wait(stream)?;
        if repairs.len() <= REFRESHED_BUCKETS_MAX {
            let repaired = repairs.iter().map(|repair| bucket(table, &view, repair.at));
            prepared.mirror = Some((copies, repaired.collect()));
        }
        for (word, copied) in words.iter().zip(copied) {
            word.store(copied, Ordering::Relaxed);
        }
        let findings = Findings {
            slots: (view.bottom_level..=view.top_level)
                .map(|level| u64::from(view.slots) << level)
                .sum(),
            items: found.members,
            fixes: repairs
                .iter()
                .map(|repair| fix(table, &view, repair))
                .collect(),
            ..Findings::default()
        };
        Ok(Some(findings.merge(table.scan_reserved(reachable))))
    }
}

/// A repair in the words of the recovery.
fn fix(table: &Table<Mapping>, view: &TableView, repair: &Repair) -> Fix {
    let addr = slot_addr(table, view, repair.at);
    match repair.kind {
        REPAIR_THAW => {
            let record = RecordWord(table.medium.load(addr.record));
            Fix::Thaw { addr, record }
        }
        REPAIR_DUPLICATE => Fix::Clear {
            addr,
            duplicate: true,
        },
        _ => Fix::Clear {
            addr,
            duplicate: false,
        },
    }
}

/// The slot whose state word stands at `at`, in some level.
fn slot_addr(table: &Table<Mapping>, view: &TableView, at: u64) -> SlotAddr {
    let (_, bucket) = bucket(table, view, at);
    table
        .shape
        .slot_addr(bucket, table.shape.slot_at(at - bucket))
}

/// The level and the offset of the bucket that `at` lies in.
fn bucket(table: &Table<Mapping>, view: &TableView, at: u64) -> (u32, u64) {
    let (offset, level) = (view.bottom_level..=view.top_level)
        .map(|level| (view.level_offset[level as usize], level))
        .filter(|&(offset, _)| offset <= at)
        .max()
        .unwrap_or((0, view.bottom_level));
    (level, at - (at - offset) % table.shape.bucket_size)
}

#[cfg(all(test, not(loom)))]
mod tests;
