//! Copies of the buckets and the records of a store's partitions in device memory: where the records of keys are, and
//! what values they have. The device answers from there, and never reads the store's files. It puts values where they stay,
//! if it is given memory for them.

mod column;
mod exchange;

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable, bytes_of, cast_slice, cast_slice_mut};

use super::abi::DIRECTORY;
use super::budget::StoreBudget;
use super::device::Device;
use super::error::Result;
use super::launch::{Blocks, Function, Launch};
use super::memory::{Address, DeviceMemory, PinnedMemory, copy_in, memory, wait};
use super::module::Module;
use super::pinned_pool::{PinnedBlock, PinnedPool};
use super::stream::Stream;
use column::Column;
use exchange::Exchange;
pub use exchange::{
    ABSENT, ASKED, Answers, CHUNK, Chunk, NO_VALUE, Questions, Said, Size, Terms, Usable,
};

/// Longest value that it gives, in bytes.
pub const VALUE_MAX: u64 = 1024;

/// Bytes of a line of a file, which is what is copied of records.
pub const LINE: u32 = 64;

/// Bytes of a file whose copies lie side by side.
const PIECE: u32 = PIECE_MEMORY - PIECE_TAIL;

/// Bytes of device memory for a piece: whole pages there, so that none are wasted.
const PIECE_MEMORY: u32 = 16 << 20;

/// Bytes behind a piece that have what the next one begins with, so that records which end there are whole.
const PIECE_TAIL: u32 = 4096;

// Each line is in one piece, and in one tail at most.
const _: () = assert!(PIECE.is_multiple_of(LINE) && PIECE_TAIL.is_multiple_of(LINE));

/// Questions and answers that may be under way at a time.
pub const EXCHANGES: usize = 3;

/// This part of the device's memory, at least, is free once records are copied there: others want some, too.
const FREE_FRACTION: u64 = 2;

/// What is staged has this part of a budget of buffers at most.
const STAGED_FRACTION: u64 = 8;

/// Partitions that there may be: each number has a view.
const PARTITIONS: usize = 1 << u8::BITS;

/// Bytes of a slot.
pub const SLOT: u32 = 16;

/// Bytes that a thread copies at a time.
const UNIT: u32 = 16;

/// Where the number of the partition is in a [`BlockId`], and that of the level.
const ID_PARTITION_SHIFT: u32 = 56;
const ID_LEVEL_SHIFT: u32 = 48;

/// The shape of the tables of all partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableShape {
    /// Bytes of a bucket, a multiple of 16.
    pub bucket_size: u32,
    pub slots: u32,
    /// Hash locations of a key.
    pub locations: u32,
}

/// The table of a partition, as one launch sees it.
#[derive(Debug, Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct PartitionView {
    levels: [Address; DIRECTORY],
    bottom_level: u32,
    /// One above the highest level.
    level_end: u32,
    bucket_size: u32,
    slots: u32,
    locations: u32,
    is_checked: u32,
    pieces: Address,
    covered: u64,
    hash_seed: u64,
}

/// A slot of a partition: its level, its bucket there, and its number in that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotId {
    pub partition: u8,
    pub level: u32,
    pub bucket: u64,
    pub number: u32,
}

/// Says where a block belongs. One that says nothing of sense is left out.
#[derive(Debug, Clone, Copy, Zeroable, Pod)]
#[repr(transparent)]
pub struct BlockId(u64);

/// Blocks on their way to the device.
pub struct Staging<'s> {
    /// What they have, one behind the other.
    pub words: &'s mut [u64],
    /// Where they belong.
    pub ids: &'s mut [BlockId],
    /// For [`BlockId::slot`].
    pub units_per_bucket: u64,
}

impl BlockId {
    /// That of a slot and those behind it.
    #[inline]
    pub fn slot(id: SlotId, units_per_bucket: u64) -> Self {
        let unit = id.bucket * units_per_bucket + u64::from(id.number * (SLOT / UNIT));
        Self(
            u64::from(id.partition) << ID_PARTITION_SHIFT
                | u64::from(id.level) << ID_LEVEL_SHIFT
                | unit,
        )
    }

    /// That of a line of a partition's file.
    #[inline]
    pub fn line(partition: u8, line: u64) -> Self {
        Self(u64::from(partition) << ID_PARTITION_SHIFT | line)
    }
}

/// See the [module](self). Nothing of it is durable.
pub struct Locator {
    // Goes before the device whose memory it has.
    parts: ManuallyDrop<Parts>,
    pool: Arc<PinnedPool>,
    device: Arc<Device>,
    shape: TableShape,
    budget: StoreBudget,
}

struct Parts {
    stream: Stream,
    /// For values on their way back: the next kernel does not wait for them.
    back: Stream,
    kernels: Kernels,
    tables: Vec<Copies>,
    /// What a launch is told of them.
    views: DeviceMemory,
    views_differ: bool,
    told: Vec<PartitionView>,
    /// Slots or lines on their way to the device, and there; how many, and of how many bytes each.
    staged: PinnedMemory,
    staged_blocks: (usize, usize),
    arrived: DeviceMemory,
    exchanges: [Exchange; EXCHANGES],
    /// What they are for.
    column: Column,
    /// Bytes of a value in the last answers.
    value_len: usize,
}

struct Kernels {
    find_records: Function,
    place_values: Function,
    store_slots: Function,
    store_lines: Function,
    blocks: Blocks,
    // The functions are its.
    _module: Module,
}

/// The levels of a partition's table that are copied, and the records.
#[derive(Default)]
struct Copies {
    levels: Vec<DeviceMemory>,
    /// The number of the first one.
    bottom: u32,
    /// Of the file.
    pieces: Vec<DeviceMemory>,
    /// Their addresses, on the device.
    piece_addresses: Option<DeviceMemory>,
    is_checked: bool,
    hash_seed: u64,
}

impl Locator {
    /// Opens the device with this ordinal and loads the kernels, for tables of one shape. Memory counts against the budget.
    ///
    /// # Errors
    /// [`Error`](super::error::Error) if there is no driver, no such device, or one that is too old.
    pub fn open(ordinal: u32, shape: TableShape, budget: &StoreBudget) -> Result<Self> {
        let quota = &budget.buffers;
        let device = Arc::new(Device::open(ordinal)?);
        let entered = device.enter()?;
        let parts = Parts {
            stream: Stream::new()?,
            back: Stream::new()?,
            kernels: Kernels::load(&device)?,
            tables: (0..PARTITIONS).map(|_| Copies::default()).collect(),
            views: DeviceMemory::new(quota, PARTITIONS * size_of::<PartitionView>())?,
            views_differ: true,
            told: Vec::new(),
            staged: PinnedMemory::empty(),
            staged_blocks: (0, 0),
            arrived: DeviceMemory::empty(quota),
            exchanges: [
                Exchange::new(quota)?,
                Exchange::new(quota)?,
                Exchange::new(quota)?,
            ],
            column: Column::default(),
            value_len: 0,
        };
        drop(entered);
        Ok(Self {
            parts: ManuallyDrop::new(parts),
            pool: PinnedPool::new(&device),
            device,
            shape,
            budget: budget.clone(),
        })
    }

    /// Bytes of blocks on their way to the device at a time.
    pub fn staged_bytes_max(&self) -> u64 {
        1 << (self.budget.buffers.bytes_max() / STAGED_FRACTION).ilog2()
    }

    /// Bytes of the copies of records.
    pub fn record_bytes(&self) -> u64 {
        let pieces = self.parts.tables.iter().flat_map(|copies| &copies.pieces);
        pieces.map(|piece| piece.len() as u64).sum()
    }

    /// Whether the budget has room for the `live` levels of a partition's table, once those but the `kept` ones and so many
    /// bytes `more` are freed.
    pub fn has_levels_room(
        &self,
        partition: u8,
        live: &RangeInclusive<u32>,
        kept: &RangeInclusive<u32>,
        more: u64,
    ) -> bool {
        let bucket_size = u64::from(self.shape.bucket_size);
        let new = live.clone().filter(|level| !kept.contains(level));
        let new: u64 = new.map(|level| bucket_size << level).sum();
        let copies = &self.parts.tables[usize::from(partition)];
        let there = (copies.bottom..).zip(&copies.levels);
        let freed = there.filter(|(level, _)| !kept.contains(level));
        let freed: u64 = freed.map(|(_, memory)| memory.len() as u64).sum();
        let left = self.budget.copies.left().saturating_add(freed);
        new <= left.saturating_add(more)
    }

    /// Frees the copies of a partition's records, and those of its levels, too, unless these are `kept`.
    ///
    /// # Errors
    /// [`Error`](super::error::Error). Nothing is freed then.
    pub fn give_up(&mut self, partition: u8, levels_kept: bool) -> Result<()> {
        let _entered = self.device.enter()?;
        self.parts.settle()?;
        self.parts.views_differ = true;
        let copies = &mut self.parts.tables[usize::from(partition)];
        copies.pieces = Vec::new();
        copies.piece_addresses = None;
        if !levels_kept {
            copies.levels = Vec::new();
        }
        Ok(())
    }

    /// Makes room for the `live` levels of a partition's table, in place of those before, of which it has the `kept` ones
    /// already. What is in the others means nothing before it is [stored](Self::store_slots). Keys are hashed with this seed.
    ///
    /// # Errors
    /// [`Error`](super::error::Error) if the device has no room. The partition then has no levels.
    pub fn make_room(
        &mut self,
        partition: u8,
        live: &RangeInclusive<u32>,
        kept: &RangeInclusive<u32>,
        hash_seed: u64,
    ) -> Result<()> {
        let _entered = self.device.enter()?;
        let (bucket_size, quota) = (self.shape.bucket_size as usize, &self.budget.copies);
        self.parts.settle()?;
        self.parts.views_differ = true;
        let copies = &mut self.parts.tables[usize::from(partition)];
        copies.hash_seed = hash_seed;
        let before = std::mem::take(&mut copies.levels);
        let mut levels: BTreeMap<u32, DeviceMemory> = (copies.bottom..).zip(before).collect();
        // What is given up makes room for what is new.
        levels.retain(|level, _| kept.contains(level));
        let room = |level| {
            let kept = levels.remove(&level).map(Ok);
            kept.unwrap_or_else(|| DeviceMemory::new(quota, bucket_size << level))
        };
        copies.levels = live.clone().map(room).collect::<Result<Vec<_>>>()?;
        copies.bottom = *live.start();
        Ok(())
    }

    /// Makes room for records in the first `len` bytes of a partition's file, or a little more: gives how many bytes are
    /// covered, none if the device has not so much to spare. A record means nothing before it is
    /// [stored](Self::store_lines). With `is_checked`, the checksums of records are compared.
    ///
    /// # Errors
    /// [`Error`](super::error::Error). The partition then has room for none.
    pub fn cover(&mut self, partition: u8, len: u64, is_checked: bool) -> Result<u64> {
        let _entered = self.device.enter()?;
        let parts = &mut *self.parts;
        let copies = &mut parts.tables[usize::from(partition)];
        copies.is_checked = is_checked;
        let wanted = usize::try_from(len.div_ceil(u64::from(PIECE))).unwrap_or(usize::MAX);
        if copies.pieces.len() == wanted {
            return Ok(copies.covered());
        }
        parts.settle()?;
        parts.views_differ = true;
        let copies = &mut parts.tables[usize::from(partition)];
        // Nothing is covered if this ends early.
        let mut pieces = std::mem::take(&mut copies.pieces);
        copies.piece_addresses = None;
        pieces.truncate(wanted);
        let missing = (wanted - pieces.len()) as u64;
        let (free, total) = memory()?;
        let spare = total / FREE_FRACTION;
        let needed = missing.saturating_mul(PIECE_MEMORY.into());
        let quota = &self.budget.copies;
        let addresses_len = (wanted * size_of::<Address>()) as u64;
        let is_within = needed.saturating_add(addresses_len) <= quota.left();
        if !is_within || free < needed.saturating_add(spare) {
            return Ok(0);
        }
        while pieces.len() < wanted {
            let Ok(piece) = DeviceMemory::new(quota, PIECE_MEMORY as usize) else {
                return Ok(0);
            };
            pieces.push(piece);
        }
        let addresses: Vec<Address> = pieces.iter().map(DeviceMemory::address).collect();
        let there = DeviceMemory::new(quota, wanted * size_of::<Address>())?;
        // SAFETY: the block is as long as the addresses, which stay until the stream has been waited for.
        let copied = unsafe { copy_in(&parts.stream, there.address(), cast_slice(&addresses)) };
        let waited = wait(&parts.stream);
        copied.and(waited)?;
        copies.pieces = pieces;
        copies.piece_addresses = Some(there);
        Ok(copies.covered())
    }

    /// Memory for `count` blocks of `size` bytes on their way to the device, slots or lines.
    ///
    /// # Errors
    /// [`Error`](super::error::Error) when the host cannot pin so much.
    pub fn staging(&mut self, count: usize, size: usize) -> Result<Staging<'_>> {
        let _entered = self.device.enter()?;
        let parts = &mut *self.parts;
        let len = count * (size + size_of::<BlockId>());
        parts.staged.reserve(len)?;
        parts.staged_blocks = (count, size);
        let (words, ids) = parts.staged.bytes_mut()[..len].split_at_mut(count * size);
        Ok(Staging {
            words: cast_slice_mut(words),
            ids: cast_slice_mut(ids),
            units_per_bucket: (self.shape.bucket_size / UNIT).into(),
        })
    }

    /// Stores the [staged](Self::staging) slots, each with those behind it that are in its block, and waits until they are
    /// there. Those of no level that there is [room](Self::make_room) for are left out.
    ///
    /// # Errors
    /// [`Error`](super::error::Error). What is there then means nothing.
    pub fn store_slots(&mut self) -> Result<()> {
        let _entered = self.device.enter()?;
        let units = self.parts.staged_blocks.1 / UNIT as usize;
        let units = u32::try_from(units).expect("a bucket is short");
        self.parts.store(self.shape, Some(units))
    }

    /// The same of lines, each of a partition's file by its number there. Those that are not [covered](Self::cover) are left
    /// out.
    ///
    /// # Errors
    /// [`Error`](super::error::Error). What is there then means nothing.
    ///
    /// # Panics
    /// If blocks of another size are staged.
    pub fn store_lines(&mut self) -> Result<()> {
        assert_eq!(self.parts.staged_blocks.1, LINE as usize);
        let _entered = self.device.enter()?;
        self.parts.store(self.shape, None)
    }

    /// Where the caller puts what he asks in one of the exchanges.
    ///
    /// # Errors
    /// [`Error`](super::error::Error) when the host cannot pin so much.
    pub fn questions(&mut self, exchange: usize, size: Size) -> Result<Questions<'_>> {
        let _entered = self.device.enter()?;
        let parts = &mut *self.parts;
        if parts.exchanges[exchange].is_under_way {
            parts.settle()?;
        }
        parts.exchanges[exchange].questions(size)
    }

    /// Whether so much can be asked in each of the exchanges within the budget.
    pub fn has_room(&self, size: Size) -> bool {
        let exchanges = self.parts.exchanges.iter();
        let missing: u64 = exchanges.map(|exchange| exchange.missing_for(size)).sum();
        missing <= self.budget.buffers.left()
    }

    /// Asks the [questions](Self::questions) of an exchange.
    ///
    /// # Errors
    /// [`Error`](super::error::Error).
    pub fn ask(&mut self, exchange: usize, terms: &Terms) -> Result<()> {
        let _entered = self.device.enter()?;
        let parts = &mut *self.parts;
        parts.exchanges[exchange].make_room(
            terms.values_wanted,
            parts.value_len,
            &self.budget.buffers,
        )?;
        parts.update_told(self.shape)?;
        let exchange = &mut parts.exchanges[exchange];
        exchange.is_under_way = true;
        let on = (&parts.stream, &parts.kernels);
        let views = (parts.views.address(), &parts.told[..]);
        exchange.launch(on, views, terms)?;
        parts.views_differ = false;
        Ok(())
    }

    /// A block for the values of a column of so many keys, and whether it was pinned for that, which takes long. None if
    /// the values of the last columns were not known, or there is no room.
    pub fn block_for(&self, values: usize) -> (Option<PinnedBlock>, bool) {
        match self.pool.take(values) {
            Some(block) => (Some(block), false),
            None => {
                let block = self.pool.pin(values);
                let is_new = block.is_some();
                (block, is_new)
            }
        }
    }

    /// Begins a column. Values that are [fetched](Self::fetch) are put into the block, one behind the other in the order of
    /// the exchanges, until those of an exchange are not known or have no room there.
    pub fn begin_column(&mut self, block: Option<PinnedBlock>) {
        drop(self.take_block(0));
        self.parts.column = Column::new(block);
    }

    /// The block of the column, if there is one that was not taken yet. If it cannot be waited for, its first `used` bytes,
    /// which have [arrived](Self::arrive): the device may still write behind them.
    pub fn take_block(&mut self, used: usize) -> Option<std::result::Result<PinnedBlock, Vec<u8>>> {
        let block = self.parts.column.target.take()?.block;
        let mut exchanges = self.parts.exchanges.iter();
        if exchanges.any(|one| one.is_under_way && one.is_placed) {
            let entered = self.device.enter();
            if entered.and_then(|_entered| self.parts.settle()).is_err() {
                let bytes = block.as_ref()[..used].to_vec();
                std::mem::forget(block);
                return Some(Err(bytes));
            }
        }
        Some(Ok(block))
    }

    /// Notes that a column of so many keys is read, so many of which were asked for, so that there is a
    /// [block](Self::block_for) for others like it, all of whose keys may be.
    pub fn end_column(&mut self, keys: usize, asked: usize) {
        let column = &self.parts.column;
        if column.keys == keys && asked > 0 && column.bytes > 0 && !column.has_gaps {
            self.pool.note(asked, column.bytes);
        }
    }

    /// Waits for what an exchange answers but for values, which are then on their way.
    ///
    /// # Errors
    /// [`Error`](super::error::Error).
    pub fn fetch(&mut self, exchange: usize) -> Result<()> {
        let _entered = self.device.enter()?;
        let parts = &mut *self.parts;
        let exchange = &mut parts.exchanges[exchange];
        // Whether it was told of the tables is not known otherwise.
        parts.views_differ = true;
        exchange.is_answered.wait()?;
        parts.views_differ = false;
        let fetched = exchange.fetch(&parts.back, parts.column.target.as_mut())?;
        parts.column.note(&fetched, exchange.is_placed);
        if fetched.bytes > 0 {
            // Who finds no room now has it the next time.
            parts.value_len = fetched.bytes.div_ceil(fetched.known.max(1));
        }
        Ok(())
    }

    /// Waits until the values of an exchange, which were [fetched](Self::fetch), have arrived.
    ///
    /// # Errors
    /// [`Error`](super::error::Error).
    pub fn arrive(&mut self, exchange: usize) -> Result<()> {
        let _entered = self.device.enter()?;
        let exchange = &mut self.parts.exchanges[exchange];
        exchange.have_arrived.wait()?;
        exchange.is_under_way = false;
        Ok(())
    }

    /// What an exchange has answered, all of which has [arrived](Self::arrive).
    pub fn answers(&self, exchange: usize) -> Answers<'_> {
        self.parts.exchanges[exchange].answers()
    }
}

impl Parts {
    /// Makes what the device is told of the tables: nothing, unless they differ from what it knows.
    fn update_told(&mut self, shape: TableShape) -> Result<()> {
        if self.views_differ {
            // The last ones may still be on their way from there.
            wait(&self.stream)?;
        }
        self.told.clear();
        if self.views_differ {
            self.told
                .extend(self.tables.iter().map(|copies| copies.view(shape)));
        }
        Ok(())
    }

    /// Stores what is staged where its ids say, and waits for that: slots, of which each block has so many `units`, or
    /// lines.
    fn store(&mut self, shape: TableShape, units: Option<u32>) -> Result<()> {
        self.update_told(shape)?;
        let (count, size) = self.staged_blocks;
        let len = count * (size + size_of::<BlockId>());
        self.arrived.reserve(len)?;
        let views = self.views.address();
        let (blocks, ids) = (
            self.arrived.address(),
            self.arrived.address() + (count * size) as u64,
        );
        let count = u32::try_from(count).expect("they are staged in memory");
        let threads = u32::try_from(count as usize * size / UNIT as usize).unwrap_or(u32::MAX);
        let mut stream = &self.stream;
        // SAFETY: the block is as long as what is copied there and read of it. The kernels write to levels and pieces that the
        // views name, which stay, and to nothing beyond their ends. Nobody changes what is copied before the stream has been
        // waited for.
        let launched = unsafe {
            copy_in(stream, views, cast_slice(&self.told))
                .and_then(|()| copy_in(stream, blocks, &self.staged.bytes()[..len]))
                .and_then(|()| {
                    let grid = self.kernels.blocks.for_threads(threads);
                    let (views, blocks, ids) =
                        (bytes_of(&views), bytes_of(&blocks), bytes_of(&ids));
                    let count = bytes_of(&count);
                    match &units {
                        Some(units) => {
                            let arguments = [views, blocks, ids, count, bytes_of(units)];
                            stream.put(self.kernels.store_slots, grid, &arguments)
                        }
                        None => {
                            let arguments = [views, blocks, ids, count];
                            stream.put(self.kernels.store_lines, grid, &arguments)
                        }
                    }
                })
        };
        let waited = wait(stream);
        launched.and(waited)?;
        self.views_differ = false;
        Ok(())
    }

    /// Waits for exchanges whose answers nobody has waited for.
    fn settle(&mut self) -> Result<()> {
        if self.exchanges.iter().any(|one| one.is_under_way) {
            wait(&self.stream)?;
            wait(&self.back)?;
        }
        for exchange in &mut self.exchanges {
            exchange.is_under_way = false;
        }
        Ok(())
    }
}

impl Copies {
    fn covered(&self) -> u64 {
        self.pieces.len() as u64 * u64::from(PIECE)
    }

    /// Without levels there are no buckets to look at.
    fn view(&self, shape: TableShape) -> PartitionView {
        let mut levels = [0; DIRECTORY];
        for (level, memory) in levels
            .iter_mut()
            .skip(self.bottom as usize)
            .zip(&self.levels)
        {
            *level = memory.address();
        }
        let count = u32::try_from(self.levels.len()).expect("levels are few");
        PartitionView {
            levels,
            bottom_level: self.bottom,
            level_end: self.bottom + count,
            bucket_size: shape.bucket_size,
            slots: shape.slots,
            locations: shape.locations,
            is_checked: u32::from(self.is_checked),
            pieces: self
                .piece_addresses
                .as_ref()
                .map_or(0, DeviceMemory::address),
            covered: self.covered(),
            hash_seed: self.hash_seed,
        }
    }
}

impl Kernels {
    /// Loads the kernels into the current context.
    fn load(device: &Device) -> Result<Self> {
        let module = Module::load(crate::LOCATOR)?;
        Ok(Self {
            find_records: module.function("find_records")?,
            place_values: module.function("place_values")?,
            store_slots: module.function("store_slots")?,
            store_lines: module.function("store_lines")?,
            blocks: Blocks::of(device),
            _module: module,
        })
    }
}

impl Drop for Locator {
    fn drop(&mut self) {
        // Device memory is freed in the context of the calling thread.
        let _entered = self.device.enter();
        // What is under way goes to memory that is freed.
        let _ = wait(&self.parts.stream);
        if wait(&self.parts.back).is_err() {
            // Its next owner would not know.
            std::mem::forget(self.parts.column.target.take());
        }
        // SAFETY: nobody uses it after this.
        unsafe { ManuallyDrop::drop(&mut self.parts) };
    }
}

static_assertions::assert_impl_all!(Locator: Send);
