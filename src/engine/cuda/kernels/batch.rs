//! Kernels that come one after another on the stream of a batch.

use bytemuck::Zeroable;

use super::declarations::{
    ARRANGE, CLEAR_BATCH, ENTER_FREE, FETCH, GROUP_KEYS, SCATTER, SPREAD, START_BINS,
    WRITE_BACK_FREE, read, resolve,
};
use super::{Grid, Kernels, Read, TILE_MIN};
use crate::Result;
use crate::engine::Write;
use crate::gpu::abi::{AddressSortView, BIN_CHUNK, BatchView, GroupsView, RecordsView, TableView};
use crate::gpu::launch::Launch;
use crate::gpu::memory::Address;

impl Kernels {
    /// Finds the slots of a batch of a verb that changes the table, and puts them in order.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    pub unsafe fn resolve(
        &self,
        mut on: impl Launch,
        verb: Write,
        table: TableView,
        records: RecordsView,
        batch: BatchView,
        counters: Address,
    ) -> Result<()> {
        let arguments = (table, records, batch, counters);
        // SAFETY: the caller keeps every address in these arguments valid, and others away, as `launch` asks.
        unsafe {
            self.launch(&mut on, resolve(verb), Grid::tiles(&batch), arguments)?;
            self.arrange(&mut on, batch.order, batch.len)
        }
    }

    /// Executes a batch of a verb that looks up.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    pub unsafe fn read(
        &self,
        mut on: impl Launch,
        verb: Read,
        table: TableView,
        batch: BatchView,
        counters: Address,
    ) -> Result<()> {
        let arguments = (table, batch, counters);
        // SAFETY: the caller keeps every address in these arguments valid, and others away, as `launch` asks.
        unsafe {
            self.launch(&mut on, read(verb), Grid::tiles(&batch), arguments)?;
            if verb == Read::Get && batch.order.wanted != 0 {
                self.arrange(&mut on, batch.order, batch.len)?;
                self.fetch(&mut on, table, batch)?;
            }
        }
        Ok(())
    }

    /// Reads the values of made-up offsets, others with each `sample` of the batch, as `get` reads
    /// those that it has found.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    pub unsafe fn read_made_up(
        &self,
        mut on: impl Launch,
        table: TableView,
        batch: BatchView,
    ) -> Result<()> {
        let (order, len) = (batch.order, batch.len);
        let seed = u64::from(batch.sample);
        let arguments = (order, len, table.file_len, table.value_size, seed);
        // SAFETY: the caller keeps every address in these arguments valid, and others away, as `launch` asks.
        unsafe {
            self.launch(&mut on, SCATTER, Grid::Threads(len), arguments)?;
            self.arrange(&mut on, order, len)?;
            self.fetch(&mut on, table, batch)
        }
    }

    /// Sorts `len` entries of the ring of records, from `first` on.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    pub unsafe fn sort_free(
        &self,
        mut on: impl Launch,
        records: RecordsView,
        first: u64,
        len: u32,
        order: AddressSortView,
    ) -> Result<()> {
        let arguments = (records, first, len, order);
        // SAFETY: the caller keeps every address in these arguments valid, and others away, as `launch` asks.
        unsafe {
            self.launch(&mut on, ENTER_FREE, Grid::Threads(len), arguments)?;
            self.arrange(&mut on, order, len)?;
            self.launch(&mut on, WRITE_BACK_FREE, Grid::Threads(len), arguments)
        }
    }

    /// Puts `len` positions in order, if that is wanted.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    unsafe fn arrange(&self, mut on: impl Launch, order: AddressSortView, len: u32) -> Result<()> {
        if order.wanted == 0 {
            return Ok(());
        }
        let chunks = Grid::Blocks(order.bin_count / BIN_CHUNK);
        // SAFETY: the caller keeps every address in these arguments valid, and others away, as `launch` asks.
        unsafe {
            self.launch(&mut on, START_BINS, chunks, (order,))?;
            self.launch(&mut on, ARRANGE, Grid::Threads(len), (order, len))
        }
    }

    /// Copies the values of a batch whose offsets are known.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    unsafe fn fetch(&self, on: impl Launch, table: TableView, mut batch: BatchView) -> Result<()> {
        batch.tile = TILE_MIN;
        // SAFETY: the caller keeps every address in these arguments valid, and others away, as `launch` asks.
        unsafe { self.launch(on, FETCH, Grid::tiles(&batch), (table, batch)) }
    }

    /// Leaves answers, counters and groups as a batch that changes the table finds them, and finds
    /// its groups of equal keys, if it has any.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    pub unsafe fn begin(
        &self,
        on: impl Launch,
        groups: Option<GroupsView>,
        batch: BatchView,
        counters: Address,
    ) -> Result<()> {
        let groups = groups.unwrap_or(GroupsView::zeroed());
        let words = batch.len.div_ceil(64);
        // SAFETY: the caller keeps every address in these arguments valid, and others away, as `launch` asks.
        unsafe { self.find_groups(on, groups, batch, words, counters) }
    }

    /// Clears the counters and so many words of answers, and finds the groups of a batch, if there is
    /// memory for them.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    unsafe fn find_groups(
        &self,
        mut on: impl Launch,
        groups: GroupsView,
        batch: BatchView,
        words: u32,
        counters: Address,
    ) -> Result<()> {
        let entries = if groups.entry == 0 {
            0
        } else {
            groups.mask + 1
        };
        let grid = Grid::Threads(batch.len);
        let cleared = (groups, entries, batch.answers, words, counters);
        let grouped = (groups, batch.keys, batch.len, self.key_size);
        // SAFETY: the caller keeps every address in these arguments valid, and others away, as `launch` asks.
        unsafe {
            self.launch(&mut on, CLEAR_BATCH, grid, cleared)?;
            if entries == 0 {
                return Ok(());
            }
            self.launch(&mut on, GROUP_KEYS, grid, grouped)
        }
    }

    /// Finds the groups of a lookup that is done, and gives the positions of each what was found for one
    /// of them: the answer and `size` bytes of its values. The counters are zero then.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    pub unsafe fn agree(
        &self,
        mut on: impl Launch,
        groups: GroupsView,
        found: BatchView,
        size: u32,
        counters: Address,
    ) -> Result<()> {
        // SAFETY: the caller keeps every address in these arguments valid, and others away, as `launch` asks.
        unsafe {
            self.find_groups(&mut on, groups, found, 0, counters)?;
            self.spread(on, groups, found, size)
        }
    }

    /// Gives every position the answer of the last one of its group, and `size` bytes of values.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    pub unsafe fn spread(
        &self,
        on: impl Launch,
        groups: GroupsView,
        batch: BatchView,
        size: u32,
    ) -> Result<()> {
        let arguments = (groups, batch.answers, batch.values, size, batch.len);
        // SAFETY: the caller keeps every address in these arguments valid, and others away, as `launch` asks.
        unsafe { self.launch(on, SPREAD, Grid::Threads(batch.len), arguments) }
    }
}
