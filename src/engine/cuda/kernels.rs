//! The kernels and how they are launched.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Zeroable;
use cust::module::{Module, ModuleJitOption};
use cust::stream::Stream;
use cust::sys;

use super::device::{Device, check, failed};
use super::store_log::{LogView, StoreLog, StoreWatch};
use super::view::{
    Address, BIN_CHUNK, BatchView, CacheLoad, DEEPEST, GroupsView, OrderView, RecordsView,
    SurveyView, TableView,
};
use crate::Result;
use crate::engine::Write;
use crate::pm::Mapping;

/// The compiled kernels; `ptx/build.py` makes them.
pub(super) const PTX: &str = include_str!("../../../ptx/gphash.ptx");

/// Threads of a block, eight warps.
pub(super) const THREADS: u32 = 256;

/// Lanes of a warp.
const WARP: u32 = 32;

/// Least positions of a tile.
const LEAST_TILE: u32 = 8;

/// Most blocks a multiprocessor is given: as many as its registers hold, so that each warp stays
/// for the whole launch.
pub(super) const BLOCKS: u32 = 4;

/// Blocks of a launch that fills the bucket cache.
const FILL_BLOCKS: u32 = 16;

/// Verbs that write nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// Copies values.
    Get,
    /// Copies nothing.
    Contains,
}

/// The loaded kernels for one size of keys.
pub struct Kernels {
    module: Module,
    /// The kernels that were launched before, by their names.
    found: Mutex<HashMap<(&'static str, &'static str), Found>>,
    /// Where they note what they store, in tests.
    log: Option<StoreLog>,
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
        watch: Option<&Arc<dyn StoreWatch>>,
    ) -> Result<Self> {
        let options: [ModuleJitOption; 0] = [];
        let ptx = watch.map_or(PTX, |watch| watch.kernels());
        let module = Module::from_ptx(ptx, &options)
            .map_err(|error| failed("loading the kernels", error))?;
        let log = watch
            .map(|watch| StoreLog::new(watch, medium))
            .transpose()?;
        Ok(Self {
            module,
            found: Mutex::default(),
            log,
            wide: key_size > 8,
            key_size: key_size as u32,
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
        stream: &Stream,
        verb: Write,
        mut table: TableView,
        mut batch: BatchView,
        mut counters: Address,
    ) -> Result<()> {
        let name = match verb {
            Write::Insert => "resolve_insert",
            Write::Upsert => "resolve_upsert",
            Write::Update => "resolve_update",
            Write::Remove => "resolve_remove",
        };
        let arguments = [
            argument(&mut table),
            argument(&mut batch),
            argument(&mut counters),
        ];
        // SAFETY: these are the kernel's parameters; the rest is as the caller says.
        unsafe {
            self.launch(
                stream,
                name,
                true,
                self.blocks_for_tiles(&batch),
                &arguments,
            )?;
            self.arrange(stream, batch)
        }
    }

    /// Stores what a batch changes, at the slots that were found.
    ///
    /// # Safety
    /// As [`resolve`](Self::resolve), which comes before it.
    pub unsafe fn write(
        &self,
        stream: &Stream,
        verb: Write,
        mut table: TableView,
        mut records: RecordsView,
        mut batch: BatchView,
        mut counters: Address,
    ) -> Result<()> {
        let name = match verb {
            Write::Insert => "insert",
            Write::Upsert => "upsert",
            Write::Update => "update",
            Write::Remove => "remove",
        };
        let arguments = [
            argument(&mut table),
            argument(&mut records),
            argument(&mut batch),
            argument(&mut counters),
        ];
        // SAFETY: as above.
        unsafe {
            self.launch(
                stream,
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
        stream: &Stream,
        verb: Read,
        mut table: TableView,
        mut batch: BatchView,
        mut counters: Address,
    ) -> Result<()> {
        let name = match verb {
            Read::Get => "get",
            Read::Contains => "contains",
        };
        let arguments = [
            argument(&mut table),
            argument(&mut batch),
            argument(&mut counters),
        ];
        // SAFETY: as above.
        unsafe {
            self.launch(
                stream,
                name,
                true,
                self.blocks_for_tiles(&batch),
                &arguments,
            )?;
            if verb == Read::Get && batch.order.wanted != 0 {
                self.arrange(stream, batch)?;
                self.fetch(stream, table, batch)?;
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
        stream: &Stream,
        table: TableView,
        batch: BatchView,
    ) -> Result<()> {
        let (mut order, mut len) = (batch.order, batch.len);
        let (mut file_len, mut value_size) = (table.file_len, table.value_size);
        let mut seed = u64::from(batch.sample);
        let arguments = [
            argument(&mut order),
            argument(&mut len),
            argument(&mut file_len),
            argument(&mut value_size),
            argument(&mut seed),
        ];
        let blocks = self.blocks_for_threads(len);
        // SAFETY: as above.
        unsafe {
            self.launch(stream, "scatter", false, blocks, &arguments)?;
            self.arrange(stream, batch)?;
            self.fetch(stream, table, batch)
        }
    }

    /// Sorts `len` entries of the ring of records, from `first` on.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    pub unsafe fn sort_free(
        &self,
        stream: &Stream,
        mut records: RecordsView,
        mut first: u64,
        mut len: u32,
        mut order: OrderView,
    ) -> Result<()> {
        let blocks = self.blocks_for_threads(len);
        let mut batch = BatchView::zeroed();
        batch.order = order;
        batch.len = len;
        let arguments = [
            argument(&mut records),
            argument(&mut first),
            argument(&mut len),
            argument(&mut order),
        ];
        // SAFETY: as above.
        unsafe {
            self.launch(stream, "enter_free", false, blocks, &arguments)?;
            self.arrange(stream, batch)?;
            self.launch(stream, "leave_free", false, blocks, &arguments)
        }
    }

    /// Puts a batch in order, if that is wanted.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    unsafe fn arrange(&self, stream: &Stream, batch: BatchView) -> Result<()> {
        let (mut order, mut len) = (batch.order, batch.len);
        if order.wanted == 0 {
            return Ok(());
        }
        let chunks = order.bin_count / BIN_CHUNK;
        let arguments = [argument(&mut order), argument(&mut len)];
        // SAFETY: as above.
        unsafe {
            self.launch(stream, "start_bins", false, chunks, &arguments[..1])?;
            self.launch(
                stream,
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
        stream: &Stream,
        mut table: TableView,
        mut batch: BatchView,
    ) -> Result<()> {
        batch.tile = LEAST_TILE;
        let blocks = self.blocks_for_tiles(&batch);
        let arguments = [argument(&mut table), argument(&mut batch)];
        // SAFETY: as above.
        unsafe { self.launch(stream, "fetch", false, blocks, &arguments) }
    }

    /// Leaves answers, counters and groups as a batch that changes the table finds them, and finds
    /// its groups of equal keys, if it has any.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub unsafe fn begin(
        &self,
        stream: &Stream,
        groups: Option<GroupsView>,
        batch: BatchView,
        mut counters: Address,
    ) -> Result<()> {
        let mut key_size = self.key_size;
        let mut entries = groups.map_or(0, |groups| groups.mask + 1);
        let mut groups = groups.unwrap_or(GroupsView::zeroed());
        let (mut keys, mut answers, mut len) = (batch.keys, batch.answers, batch.len);
        let mut words = len.div_ceil(64);
        let cleared = [
            argument(&mut groups),
            argument(&mut entries),
            argument(&mut answers),
            argument(&mut words),
            argument(&mut counters),
        ];
        let grouped = [
            argument(&mut groups),
            argument(&mut keys),
            argument(&mut len),
            argument(&mut key_size),
        ];
        let blocks = self.blocks_for_threads(len);
        // SAFETY: as above.
        unsafe {
            self.launch(stream, "clear_batch", false, blocks, &cleared)?;
            if entries == 0 {
                return Ok(());
            }
            self.launch(stream, "group_keys", false, blocks, &grouped)
        }
    }

    /// Brings the counters and so many words of answers to `to`, which is memory of the host.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub unsafe fn report(
        &self,
        stream: &Stream,
        mut counters: Address,
        mut answers: Address,
        mut words: u32,
        mut to: Address,
    ) -> Result<()> {
        let arguments = [
            argument(&mut counters),
            argument(&mut answers),
            argument(&mut words),
            argument(&mut to),
        ];
        let blocks = self.blocks_for_threads(words);
        // SAFETY: as above.
        unsafe { self.launch(stream, "report", false, blocks, &arguments) }
    }

    /// Gives every position the answer of the last one of its group.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub unsafe fn spread(
        &self,
        stream: &Stream,
        mut groups: GroupsView,
        mut answers: Address,
        mut len: u32,
    ) -> Result<()> {
        let arguments = [
            argument(&mut groups),
            argument(&mut answers),
            argument(&mut len),
        ];
        // SAFETY: as above.
        unsafe {
            self.launch(
                stream,
                "spread_answers",
                false,
                self.blocks_for_threads(len),
                &arguments,
            )
        }
    }

    /// Moves the items of some buckets of the bottom level up.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    pub unsafe fn drain(
        &self,
        stream: &Stream,
        mut table: TableView,
        buckets: std::ops::Range<u64>,
        mut counters: Address,
    ) -> Result<()> {
        let (mut from, mut to) = (buckets.start, buckets.end);
        let arguments = [
            argument(&mut table),
            argument(&mut from),
            argument(&mut to),
            argument(&mut counters),
        ];
        let blocks = self.blocks_for_warps(to - from);
        // SAFETY: as above.
        unsafe { self.launch(stream, "drain", true, blocks, &arguments) }
    }

    /// Surveys one level.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub unsafe fn survey(
        &self,
        stream: &Stream,
        mut table: TableView,
        mut level: u32,
        mut survey: SurveyView,
        mut findings: Address,
    ) -> Result<()> {
        let at_once = u64::from(WARP / table.slots);
        let blocks = self.blocks_for_warps((1u64 << level).div_ceil(at_once));
        let arguments = [
            argument(&mut table),
            argument(&mut level),
            argument(&mut survey),
            argument(&mut findings),
        ];
        // SAFETY: as above.
        unsafe { self.launch(stream, "survey", true, blocks, &arguments) }
    }

    /// Puts the launches on a stream by which a load finds out the scores of all buckets.
    ///
    /// # Safety
    /// As [`resolve`](Self::resolve).
    pub unsafe fn survey_cache(
        &self,
        stream: &Stream,
        mut table: TableView,
        mut load: CacheLoad,
    ) -> Result<()> {
        let arguments = [argument(&mut table), argument(&mut load)];
        // SAFETY: as above.
        unsafe { self.launch(stream, "cache_survey", false, self.blocks, &arguments) }
    }

    /// Puts the launches on a stream that give entries to the buckets that a load has chosen.
    ///
    /// # Safety
    /// As [`resolve`](Self::resolve).
    pub unsafe fn choose_cached(
        &self,
        stream: &Stream,
        mut table: TableView,
        mut load: CacheLoad,
        mut outcome: Address,
    ) -> Result<()> {
        let arguments = [
            argument(&mut table),
            argument(&mut load),
            argument(&mut outcome),
        ];
        for name in ["cache_elect", "cache_release", "cache_assign"] {
            // SAFETY: as above.
            unsafe { self.launch(stream, name, false, self.blocks, &arguments)? };
        }
        Ok(())
    }

    /// Fills some of the entries that a load has given, with few warps: the file is for others.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub unsafe fn fill_cache(
        &self,
        stream: &Stream,
        mut table: TableView,
        mut load: CacheLoad,
        part: std::ops::Range<u64>,
    ) -> Result<()> {
        let (mut from, mut to) = (part.start, part.end);
        let arguments = [
            argument(&mut table),
            argument(&mut load),
            argument(&mut from),
            argument(&mut to),
        ];
        let blocks = self.blocks_for_warps(to - from).min(FILL_BLOCKS);
        // SAFETY: as above.
        unsafe { self.launch(stream, "cache_fill", false, blocks, &arguments) }
    }

    /// Shows what was filled to readers.
    ///
    /// # Safety
    /// As [`resolve`](Self::resolve).
    pub unsafe fn link_cached(
        &self,
        stream: &Stream,
        mut table: TableView,
        mut load: CacheLoad,
        part: std::ops::Range<u64>,
        mut outcome: Address,
    ) -> Result<()> {
        let (mut from, mut to) = (part.start, part.end);
        let arguments = [
            argument(&mut table),
            argument(&mut load),
            argument(&mut from),
            argument(&mut to),
            argument(&mut outcome),
        ];
        let blocks = self.blocks_for_warps(to - from);
        // SAFETY: as above.
        unsafe { self.launch(stream, "cache_link", false, blocks, &arguments) }
    }

    /// Takes the buckets of a level out of the cache.
    ///
    /// # Safety
    /// As [`resolve`](Self::resolve).
    pub unsafe fn uncache_level(
        &self,
        stream: &Stream,
        mut table: TableView,
        mut load: CacheLoad,
        mut level: u32,
        mut outcome: Address,
    ) -> Result<()> {
        let arguments = [
            argument(&mut table),
            argument(&mut load),
            argument(&mut level),
            argument(&mut outcome),
        ];
        let blocks = self.blocks_for_warps((1u64 << level).div_ceil(u64::from(WARP)));
        // SAFETY: as above.
        unsafe { self.launch(stream, "cache_leave", false, blocks, &arguments) }
    }

    fn blocks_for_tiles(&self, batch: &BatchView) -> u32 {
        self.blocks_for_warps(u64::from(batch.len.div_ceil(batch.tile)))
    }

    fn blocks_for_warps(&self, warps: u64) -> u32 {
        let blocks = warps.div_ceil(u64::from(THREADS / WARP));
        blocks.clamp(1, u64::from(self.blocks)) as u32
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
        stream: &Stream,
        name: &'static str,
        by_key: bool,
        blocks: u32,
        arguments: &[*mut c_void],
    ) -> Result<()> {
        let log = self.log.as_ref().filter(|_| StoreLog::concerns(name));
        if let Some(log) = log {
            let mut view = log.begin(stream, name)?;
            // SAFETY: the log outlives the stream's launches, whose end is waited for.
            unsafe { self.put(stream, "set_store_log", false, 1, &[argument(&mut view)])? };
        }
        // SAFETY: as the caller says.
        unsafe { self.put(stream, name, by_key, blocks, arguments)? };
        if let Some(log) = log {
            let mut none = LogView::zeroed();
            // SAFETY: as above.
            unsafe { self.put(stream, "set_store_log", false, 1, &[argument(&mut none)])? };
            log.end(stream, name)?;
        }
        Ok(())
    }

    /// As [`launch`](Self::launch), whatever the kernel does.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    unsafe fn put(
        &self,
        stream: &Stream,
        name: &'static str,
        by_key: bool,
        blocks: u32,
        arguments: &[*mut c_void],
    ) -> Result<()> {
        let suffix = match (by_key, self.wide) {
            (false, _) => "",
            (true, false) => "_word",
            (true, true) => "_wide",
        };
        let Found(function) = self.find(name, suffix)?;
        // SAFETY: the function is one of the module; the arguments are those of the kernel, by its
        // callers here, and are copied by the call.
        let answer = unsafe {
            sys::cuLaunchKernel(
                function,
                blocks,
                1,
                1,
                THREADS,
                1,
                1,
                0,
                stream.as_inner(),
                arguments.as_ptr().cast_mut(),
                std::ptr::null_mut(),
            )
        };
        check("launching a kernel", answer)
    }

    fn find(&self, name: &'static str, suffix: &'static str) -> Result<Found> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = found.get(&(name, suffix)) {
            return Ok(*function);
        }
        let function = self
            .module
            .get_function(format!("{name}{suffix}"))
            .map_err(|error| failed("finding a kernel", error))?;
        let function = Found(function.to_raw());
        found.insert((name, suffix), function);
        Ok(function)
    }
}

/// A kernel of the module, which stays loaded as long as [`Kernels`].
#[derive(Clone, Copy)]
struct Found(sys::CUfunction);

// SAFETY: the driver takes a kernel's handle on any thread.
unsafe impl Send for Found {}

fn argument<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}
