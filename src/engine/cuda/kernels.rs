//! The kernels and how they are launched.

use std::collections::HashMap;
use std::sync::Arc;

use bytemuck::{Zeroable, bytes_of};
use parking_lot::Mutex;

use super::abi::{
    BIN_CHUNK, BatchView, CacheLoad, DEEPEST, GroupsView, OrderView, RecordsView, SurveyView,
    TableView,
};
use super::write_trace::{LogView, TraceBuffer};
use crate::Result;
use crate::engine::Write;
use crate::gpu::device::Device;
use crate::gpu::launch::{BLOCKS, THREADS};
use crate::gpu::launch::{Function, Launch};
use crate::gpu::memory::Address;
use crate::gpu::module::Module;
use crate::pm::Mapping;
use crate::width::u32_of;
use crate::write_trace::WriteTrace;

/// Lanes of a warp.
const WARP: u32 = 32;

/// Least positions of a tile.
const LEAST_TILE: u32 = 8;

/// Blocks of a launch that fills the bucket cache.
const FILL_BLOCKS: u32 = 16;

/// Verbs that write nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// Copies values.
    Get,
    /// Copies nothing.
    Contains,
    /// Says where the values are: the offset of each in the file, or 0, in place of the value.
    Locate,
}

/// The loaded kernels for one size of keys.
pub struct Kernels {
    module: Module,
    /// The kernels that were launched before, by their names.
    found: Mutex<HashMap<(&'static str, &'static str), Function>>,
    /// Where they note what they store, in tests.
    log: Option<TraceBuffer>,
    wide: bool,
    key_size: u32,
    blocks: u32,
}

impl Kernels {
    /// Loads the kernels into the current context.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if the driver is too old for them.
    pub fn load(
        device: &Device,
        medium: &Mapping,
        key_size: u64,
        watch: Option<&Arc<dyn WriteTrace>>,
    ) -> Result<Self> {
        let ptx = watch.map_or(gphash_kernels::INDEX, |watch| watch.kernels());
        let module = Module::load(ptx)?;
        let log = watch
            .map(|watch| TraceBuffer::new(watch, medium))
            .transpose()?;
        Ok(Self {
            module,
            found: Mutex::default(),
            log,
            wide: key_size > 8,
            key_size: u32_of(key_size),
            blocks: watch
                .map_or(u32::MAX, |watch| watch.blocks())
                .min(device.processors() * BLOCKS),
        })
    }

    /// How many positions a warp should take at a time in a batch of `len`: few in a small
    /// batch, so that all of the device works on it, and up to a warp's width in a large one, so
    /// that its operations share fences and atomics. At least a byte of answers.
    pub fn tile(&self, len: u32) -> u32 {
        let warps = self.blocks * (THREADS / WARP);
        let share = (len / warps).clamp(LEAST_TILE, WARP);
        1 << share.ilog2()
    }

    /// How many tiles of a change should share their fences: as many as leave work for all warps.
    pub fn depth(&self, len: u32) -> u32 {
        let warps = self.blocks * (THREADS / WARP);
        (len / (warps * self.tile(len))).clamp(1, DEEPEST)
    }

    /// Finds the slots of a batch of a verb that changes the table.
    ///
    /// # Safety
    /// All addresses must be valid for the sizes that the views state until the stream has come
    /// past, and no other launch may change the table meanwhile.
    pub unsafe fn resolve(
        &self,
        mut on: impl Launch,
        verb: Write,
        table: TableView,
        records: RecordsView,
        batch: BatchView,
        counters: Address,
    ) -> Result<()> {
        let name = match verb {
            Write::Insert => "resolve_insert",
            Write::Upsert => "resolve_upsert",
            Write::Update => "resolve_update",
            Write::Remove => "resolve_remove",
        };
        let arguments = [
            bytes_of(&table),
            bytes_of(&records),
            bytes_of(&batch),
            bytes_of(&counters),
        ];
        // SAFETY: these are the kernel's parameters; the rest is as the caller says.
        unsafe {
            self.launch(
                &mut on,
                name,
                true,
                self.blocks_for_tiles(&batch),
                &arguments,
            )?;
            self.arrange(&mut on, batch)
        }
    }

    /// Stores what a batch changes, at the slots that were found.
    ///
    /// # Safety
    /// As [`resolve`](Self::resolve), which comes before it.
    pub unsafe fn write(
        &self,
        mut on: impl Launch,
        verb: Write,
        table: TableView,
        records: RecordsView,
        batch: BatchView,
        counters: Address,
    ) -> Result<()> {
        let name = match verb {
            Write::Insert => "insert",
            Write::Upsert => "upsert",
            Write::Update => "update",
            Write::Remove => "remove",
        };
        let arguments = [
            bytes_of(&table),
            bytes_of(&records),
            bytes_of(&batch),
            bytes_of(&counters),
        ];
        // SAFETY: as above.
        unsafe {
            self.launch(
                &mut on,
                name,
                true,
                self.blocks_for_tiles(&batch),
                &arguments,
            )
        }
    }

    /// Executes a batch of a verb that looks up.
    ///
    /// # Safety
    /// All addresses must be valid for the sizes that the views state until the stream has come
    /// past.
    pub unsafe fn read(
        &self,
        mut on: impl Launch,
        verb: Read,
        table: TableView,
        batch: BatchView,
        counters: Address,
    ) -> Result<()> {
        let name = match verb {
            Read::Get => "get",
            Read::Contains => "contains",
            Read::Locate => "locate",
        };
        let arguments = [bytes_of(&table), bytes_of(&batch), bytes_of(&counters)];
        // SAFETY: as above.
        unsafe {
            self.launch(
                &mut on,
                name,
                true,
                self.blocks_for_tiles(&batch),
                &arguments,
            )?;
            if verb == Read::Get && batch.order.wanted != 0 {
                self.arrange(&mut on, batch)?;
                self.fetch(&mut on, table, batch)?;
            }
        }
        Ok(())
    }

    /// Reads the values of made-up places, others with each `sample` of the batch, as `get` reads
    /// those that it has found.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub unsafe fn read_made_up(
        &self,
        mut on: impl Launch,
        table: TableView,
        batch: BatchView,
    ) -> Result<()> {
        let (order, len) = (batch.order, batch.len);
        let (file_len, value_size) = (table.file_len, table.value_size);
        let seed = u64::from(batch.sample);
        let arguments = [
            bytes_of(&order),
            bytes_of(&len),
            bytes_of(&file_len),
            bytes_of(&value_size),
            bytes_of(&seed),
        ];
        let blocks = self.blocks_for_threads(len);
        // SAFETY: as above.
        unsafe {
            self.launch(&mut on, "scatter", false, blocks, &arguments)?;
            self.arrange(&mut on, batch)?;
            self.fetch(&mut on, table, batch)
        }
    }

    /// Sorts `len` entries of the ring of records, from `first` on.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    pub unsafe fn sort_free(
        &self,
        mut on: impl Launch,
        records: RecordsView,
        first: u64,
        len: u32,
        order: OrderView,
    ) -> Result<()> {
        let blocks = self.blocks_for_threads(len);
        let mut batch = BatchView::zeroed();
        batch.order = order;
        batch.len = len;
        let arguments = [
            bytes_of(&records),
            bytes_of(&first),
            bytes_of(&len),
            bytes_of(&order),
        ];
        // SAFETY: as above.
        unsafe {
            self.launch(&mut on, "enter_free", false, blocks, &arguments)?;
            self.arrange(&mut on, batch)?;
            self.launch(&mut on, "leave_free", false, blocks, &arguments)
        }
    }

    /// Puts a batch in order, if that is wanted.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    unsafe fn arrange(&self, mut on: impl Launch, batch: BatchView) -> Result<()> {
        let (order, len) = (batch.order, batch.len);
        if order.wanted == 0 {
            return Ok(());
        }
        let chunks = order.bin_count / BIN_CHUNK;
        let arguments = [bytes_of(&order), bytes_of(&len)];
        // SAFETY: as above.
        unsafe {
            self.launch(&mut on, "start_bins", false, chunks, &arguments[..1])?;
            self.launch(
                &mut on,
                "arrange",
                false,
                self.blocks_for_threads(len),
                &arguments,
            )
        }
    }

    /// Copies the values of a batch whose places are known.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    unsafe fn fetch(
        &self,
        mut on: impl Launch,
        table: TableView,
        mut batch: BatchView,
    ) -> Result<()> {
        batch.tile = LEAST_TILE;
        let blocks = self.blocks_for_tiles(&batch);
        let arguments = [bytes_of(&table), bytes_of(&batch)];
        // SAFETY: as above.
        unsafe { self.launch(&mut on, "fetch", false, blocks, &arguments) }
    }

    /// Leaves answers, counters and groups as a batch that changes the table finds them, and finds
    /// its groups of equal keys, if it has any.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub unsafe fn begin(
        &self,
        on: impl Launch,
        groups: Option<GroupsView>,
        batch: BatchView,
        counters: Address,
    ) -> Result<()> {
        let groups = groups.unwrap_or(GroupsView::zeroed());
        let words = batch.len.div_ceil(64);
        // SAFETY: as above.
        unsafe { self.find_groups(on, groups, batch, words, counters) }
    }

    /// Clears the counters and so many words of answers, and finds the groups of a batch, if there is
    /// memory for them.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    unsafe fn find_groups(
        &self,
        mut on: impl Launch,
        groups: GroupsView,
        batch: BatchView,
        words: u32,
        counters: Address,
    ) -> Result<()> {
        let key_size = self.key_size;
        let entries = if groups.entry == 0 {
            0
        } else {
            groups.mask + 1
        };
        let (keys, answers, len) = (batch.keys, batch.answers, batch.len);
        let cleared = [
            bytes_of(&groups),
            bytes_of(&entries),
            bytes_of(&answers),
            bytes_of(&words),
            bytes_of(&counters),
        ];
        let grouped = [
            bytes_of(&groups),
            bytes_of(&keys),
            bytes_of(&len),
            bytes_of(&key_size),
        ];
        let blocks = self.blocks_for_threads(len);
        // SAFETY: as above.
        unsafe {
            self.launch(&mut on, "clear_batch", false, blocks, &cleared)?;
            if entries == 0 {
                return Ok(());
            }
            self.launch(&mut on, "group_keys", false, blocks, &grouped)
        }
    }

    /// Brings the counters and so many words of answers to `to`, which is memory of the host.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub unsafe fn report(
        &self,
        mut on: impl Launch,
        counters: Address,
        answers: Address,
        words: u32,
        to: Address,
    ) -> Result<()> {
        let arguments = [
            bytes_of(&counters),
            bytes_of(&answers),
            bytes_of(&words),
            bytes_of(&to),
        ];
        let blocks = self.blocks_for_threads(words);
        // SAFETY: as above.
        unsafe { self.launch(&mut on, "report", false, blocks, &arguments) }
    }

    /// Finds the groups of a lookup that is done, and gives the positions of each what was found for one
    /// of them: the answer and `size` bytes of its values. The counters are zero then.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub unsafe fn agree(
        &self,
        mut on: impl Launch,
        groups: GroupsView,
        found: BatchView,
        size: u32,
        counters: Address,
    ) -> Result<()> {
        // SAFETY: as above.
        unsafe {
            self.find_groups(&mut on, groups, found, 0, counters)?;
            self.spread(on, groups, found, size)
        }
    }

    /// Gives every position the answer of the last one of its group, and `size` bytes of values.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub unsafe fn spread(
        &self,
        mut on: impl Launch,
        groups: GroupsView,
        batch: BatchView,
        size: u32,
    ) -> Result<()> {
        let (answers, values, len) = (batch.answers, batch.values, batch.len);
        let arguments = [
            bytes_of(&groups),
            bytes_of(&answers),
            bytes_of(&values),
            bytes_of(&size),
            bytes_of(&len),
        ];
        let blocks = self.blocks_for_threads(len);
        // SAFETY: as above.
        unsafe { self.launch(&mut on, "spread", false, blocks, &arguments) }
    }

    /// Moves the items of some buckets of the bottom level up.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    pub unsafe fn drain(
        &self,
        mut on: impl Launch,
        table: TableView,
        buckets: std::ops::Range<u64>,
        counters: Address,
    ) -> Result<()> {
        let (from, to) = (buckets.start, buckets.end);
        let arguments = [
            bytes_of(&table),
            bytes_of(&from),
            bytes_of(&to),
            bytes_of(&counters),
        ];
        let blocks = self.blocks_for_warps(to - from);
        // SAFETY: as above.
        unsafe { self.launch(&mut on, "drain", true, blocks, &arguments) }
    }

    /// Surveys one level.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub unsafe fn survey(
        &self,
        mut on: impl Launch,
        table: TableView,
        level: u32,
        survey: SurveyView,
        findings: Address,
    ) -> Result<()> {
        let at_once = u64::from(WARP / table.slots);
        let blocks = self.blocks_for_warps((1u64 << level).div_ceil(at_once));
        let arguments = [
            bytes_of(&table),
            bytes_of(&level),
            bytes_of(&survey),
            bytes_of(&findings),
        ];
        // SAFETY: as above.
        unsafe { self.launch(&mut on, "survey", true, blocks, &arguments) }
    }

    /// Puts the launches on a stream by which a load finds out the scores of all buckets.
    ///
    /// # Safety
    /// As [`resolve`](Self::resolve).
    pub unsafe fn survey_cache(
        &self,
        mut on: impl Launch,
        table: TableView,
        load: CacheLoad,
    ) -> Result<()> {
        let arguments = [bytes_of(&table), bytes_of(&load)];
        // SAFETY: as above.
        unsafe { self.launch(&mut on, "cache_survey", false, self.blocks, &arguments) }
    }

    /// Puts the launches on a stream that give entries to the buckets that a load has chosen.
    ///
    /// # Safety
    /// As [`resolve`](Self::resolve).
    pub unsafe fn choose_cached(
        &self,
        mut on: impl Launch,
        table: TableView,
        load: CacheLoad,
        outcome: Address,
    ) -> Result<()> {
        let arguments = [bytes_of(&table), bytes_of(&load), bytes_of(&outcome)];
        for name in ["cache_elect", "cache_release", "cache_assign"] {
            // SAFETY: as above.
            unsafe { self.launch(&mut on, name, false, self.blocks, &arguments)? };
        }
        Ok(())
    }

    /// Fills some of the entries that a load has given, with few warps: the file is for others.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub unsafe fn fill_cache(
        &self,
        mut on: impl Launch,
        table: TableView,
        load: CacheLoad,
        part: std::ops::Range<u64>,
    ) -> Result<()> {
        let (from, to) = (part.start, part.end);
        let arguments = [
            bytes_of(&table),
            bytes_of(&load),
            bytes_of(&from),
            bytes_of(&to),
        ];
        let blocks = self.blocks_for_warps(to - from).min(FILL_BLOCKS);
        // SAFETY: as above.
        unsafe { self.launch(&mut on, "cache_fill", false, blocks, &arguments) }
    }

    /// Shows what was filled to readers.
    ///
    /// # Safety
    /// As [`resolve`](Self::resolve).
    pub unsafe fn link_cached(
        &self,
        mut on: impl Launch,
        table: TableView,
        load: CacheLoad,
        part: std::ops::Range<u64>,
        outcome: Address,
    ) -> Result<()> {
        let (from, to) = (part.start, part.end);
        let arguments = [
            bytes_of(&table),
            bytes_of(&load),
            bytes_of(&from),
            bytes_of(&to),
            bytes_of(&outcome),
        ];
        let blocks = self.blocks_for_warps(to - from);
        // SAFETY: as above.
        unsafe { self.launch(&mut on, "cache_link", false, blocks, &arguments) }
    }

    /// Takes the buckets of a level out of the cache.
    ///
    /// # Safety
    /// As [`resolve`](Self::resolve).
    pub unsafe fn uncache_level(
        &self,
        mut on: impl Launch,
        table: TableView,
        load: CacheLoad,
        level: u32,
        outcome: Address,
    ) -> Result<()> {
        let arguments = [
            bytes_of(&table),
            bytes_of(&load),
            bytes_of(&level),
            bytes_of(&outcome),
        ];
        let blocks = self.blocks_for_warps((1u64 << level).div_ceil(u64::from(WARP)));
        // SAFETY: as above.
        unsafe { self.launch(&mut on, "cache_leave", false, blocks, &arguments) }
    }

    fn blocks_for_tiles(&self, batch: &BatchView) -> u32 {
        self.blocks_for_warps(u64::from(batch.len.div_ceil(batch.tile)))
    }

    fn blocks_for_warps(&self, warps: u64) -> u32 {
        let blocks = warps.div_ceil(u64::from(THREADS / WARP));
        u32::try_from(blocks).map_or(self.blocks, |blocks| blocks.clamp(1, self.blocks))
    }

    fn blocks_for_threads(&self, threads: u32) -> u32 {
        self.blocks_for_warps(u64::from(threads.div_ceil(WARP)))
    }

    /// Puts a kernel on a stream.
    ///
    /// # Safety
    /// `arguments` must be those that the kernel of that name takes, and every address in them
    /// must stay valid until the stream has run it.
    unsafe fn launch(
        &self,
        on: &mut impl Launch,
        name: &'static str,
        by_key: bool,
        blocks: u32,
        arguments: &[&[u8]],
    ) -> Result<()> {
        let suffix = match (by_key, self.wide) {
            (false, _) => "",
            (true, false) => "_word",
            (true, true) => "_wide",
        };
        let function = self.find(name, suffix)?;
        let Some(log) = &self.log else {
            // SAFETY: as the caller says.
            return unsafe { on.put(function, blocks, arguments) };
        };
        // What is noted is noted launch by launch.
        let mut stream = on.stream();
        if !TraceBuffer::concerns(name) {
            // SAFETY: as the caller says.
            return unsafe { stream.put(function, blocks, arguments) };
        }
        let set = self.find("set_write_trace", "")?;
        let (view, none) = (log.begin(stream, name)?, LogView::zeroed());
        // SAFETY: as the caller says; the log outlives the stream's launches, whose end is waited
        // for.
        unsafe {
            stream.put(set, 1, &[bytes_of(&view)])?;
            stream.put(function, blocks, arguments)?;
            stream.put(set, 1, &[bytes_of(&none)])?;
        }
        log.end(stream, name)
    }

    fn find(&self, name: &'static str, suffix: &'static str) -> Result<Function> {
        let mut found = self.found.lock();
        if let Some(function) = found.get(&(name, suffix)) {
            return Ok(*function);
        }
        let function = self.module.function(&format!("{name}{suffix}"))?;
        found.insert((name, suffix), function);
        Ok(function)
    }
}
