//! Copies of the buckets and the records of a store's partitions in device memory: where the records of keys are, and
//! what values they have. The device answers from there, and never reads the store's files.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;

use bytemuck::{Pod, Zeroable, bytes_of, cast_slice, cast_slice_mut};

use super::abi::DIRECTORY;
use super::device::Device;
use super::error::Result;
use super::event::Event;
use super::launch::{Blocks, Function, Launch, THREADS};
use super::memory::{Address, DeviceMemory, PinnedMemory, copy_in, copy_out, fill, memory, wait};
use super::module::Module;
use super::stream::Stream;

/// Keys whose values a block of threads puts side by side.
pub const CHUNK: usize = 512;

/// In place of the length of a value that the device does not give.
pub const NO_VALUE: u32 = u32::MAX;

/// Longest value that it gives, in bytes.
pub const VALUE_MAX: u64 = 1024;

/// Bytes of a line of a file, which is what is copied of records.
pub const LINE: u32 = 64;

/// Bytes of a file whose copies lie side by side.
const PIECE: u32 = 16 << 20;

/// Questions and answers that may be under way at a time.
pub const EXCHANGES: usize = 3;

/// In place of where the values of a chunk begin, if there was no room for them.
const NO_ROOM: u64 = u64::MAX;

/// This part of the device's memory, at least, is free once records are copied there: others want some, too.
const FREE_FRACTION: u64 = 2;

/// Bytes of a value for which there is room before anything is known of values.
const USUAL_VALUE: usize = 128;

/// Partitions that there may be: each number has a view.
const PARTITIONS: usize = 1 << u8::BITS;

/// Bytes of a slot.
pub const SLOT: u32 = 16;

/// Bytes that a thread copies at a time.
const UNIT: u32 = 16;

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

/// Keys that are asked for, as a launch sees them.
#[derive(Debug, Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct QuestionsView {
    ends: Address,
    keys: Address,
    /// Or zero: a hash of each key says which.
    partitions: Address,
    excluded: u64,
    usable: Usable,
    route_seed: u64,
    partition_count: u32,
    len: u32,
    values_wanted: u32,
    unused: u32,
}

/// What is known of them, as a launch sees it.
#[derive(Debug, Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct AnswersView {
    records: Address,
    chunks: Address,
    used: Address,
    lens: Address,
    values: Address,
    room: u64,
}

/// Where the caller puts what he asks for.
pub struct Questions<'q> {
    /// Where each key ends among the bytes of all.
    pub ends: &'q mut [u32],
    /// All keys, one behind the other.
    pub keys: &'q mut [u8],
    /// The number of each key's partition, if the caller says so.
    pub partitions: &'q mut [u8],
}

/// How much is asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Size {
    /// Keys.
    pub len: usize,
    /// Bytes that all of them have.
    pub key_bytes: usize,
    /// The caller says which partitions they are in.
    pub has_partitions: bool,
}

/// A bit for each number of a partition, the lowest of each word first.
pub type Usable = [u64; PARTITIONS / u64::BITS as usize];

/// How it is answered.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Values are given.
    pub values_wanted: bool,
    /// Bits of sequence numbers: values of records with one of them are not.
    pub excluded: u64,
    /// Nothing is said of other partitions.
    pub usable: Usable,
    /// The seed of the hash that says which partition has a key, and how many there are.
    pub route: (u64, u32),
}

/// What the device has answered.
pub struct Answers<'a> {
    /// For each key, the offset of the record that a slot of the copied buckets names beside its fingerprint, in the file
    /// of its partition; 0 if none does, or if it is not in the nearest buckets. Another key may have the fingerprint.
    pub records: &'a [u64],
    /// Bytes of each key's value, or [`NO_VALUE`].
    lens: &'a [u32],
    chunks: &'a [ChunkAnswer],
    values: &'a [u8],
}

/// What a launch says of a chunk of keys.
#[derive(Debug, Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct ChunkAnswer {
    start: u64,
    bytes: u32,
    left: u32,
}

/// What is known of the keys of a [`CHUNK`].
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// Where among all [values](Answers::values) theirs are, one behind the other.
    pub start: usize,
    /// The lengths of these, and [`NO_VALUE`] where the device has no copy of the key's record, or not a whole one.
    pub lens: &'a [u32],
    /// The sum of all lengths.
    pub bytes: usize,
    /// Keys without one.
    pub left: usize,
}

impl<'a> Answers<'a> {
    /// The values of all keys.
    pub fn values(&self) -> &'a [u8] {
        self.values
    }

    /// The lengths of all, as [chunks](Self::chunk) have them.
    pub fn lens(&self) -> &'a [u32] {
        self.lens
    }

    /// What is known of the keys of a chunk, if there was room for all.
    pub fn chunk(&self, chunk: usize) -> Option<Chunk<'a>> {
        let ChunkAnswer { start, bytes, left } = *self.chunks.get(chunk)?;
        Some(Chunk {
            start: usize::try_from(start).ok().filter(|_| start != NO_ROOM)?,
            lens: self.lens.chunks(CHUNK).nth(chunk)?,
            bytes: bytes as usize,
            left: left as usize,
        })
    }
}

/// A slot of a partition: its level, its bucket there, and its number in that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotId {
    pub partition: u8,
    pub level: u32,
    pub bucket: u64,
    pub number: u32,
}

/// See the [module](self). Nothing of it is durable.
pub struct Locator {
    // Goes before the device whose memory it has.
    parts: ManuallyDrop<Parts>,
    device: Device,
    shape: TableShape,
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
    /// Buckets on their way to the device, and there.
    staged: PinnedMemory,
    arrived: DeviceMemory,
    exchanges: [Exchange; EXCHANGES],
    /// Bytes of values in the answers of late.
    values_len: usize,
}

/// Questions on their way to the device and there, and their answers there and on their way back.
struct Exchange {
    asked: PinnedMemory,
    questions: DeviceMemory,
    answers: DeviceMemory,
    answered: PinnedMemory,
    /// Comes to pass when these are.
    is_answered: Event,
    values: DeviceMemory,
    values_arrived: PinnedMemory,
    have_arrived: Event,
    /// What was asked last.
    size: Size,
    /// Of its answers.
    value_bytes: usize,
    /// The device may have to do with it.
    is_under_way: bool,
}

struct Kernels {
    find_records: Function,
    store_blocks: Function,
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
    /// Opens the device with this ordinal and loads the kernels, for tables of one shape.
    ///
    /// # Errors
    /// [`Error`](super::error::Error) if there is no driver, no such device, or one that is too old.
    pub fn open(ordinal: u32, shape: TableShape) -> Result<Self> {
        let device = Device::open(ordinal)?;
        let entered = device.enter()?;
        let parts = Parts {
            stream: Stream::new()?,
            back: Stream::new()?,
            kernels: Kernels::load(&device)?,
            tables: (0..PARTITIONS).map(|_| Copies::default()).collect(),
            views: DeviceMemory::new(PARTITIONS * size_of::<PartitionView>())?,
            views_differ: true,
            told: Vec::new(),
            staged: PinnedMemory::empty(),
            arrived: DeviceMemory::new(0)?,
            exchanges: [Exchange::new()?, Exchange::new()?, Exchange::new()?],
            values_len: 0,
        };
        drop(entered);
        Ok(Self {
            parts: ManuallyDrop::new(parts),
            device,
            shape,
        })
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
        let bucket_size = self.shape.bucket_size as usize;
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
            kept.unwrap_or_else(|| DeviceMemory::new(bucket_size << level))
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
        if free < missing.saturating_mul(PIECE.into()).saturating_add(spare) {
            return Ok(0);
        }
        while pieces.len() < wanted {
            let Ok(piece) = DeviceMemory::new(PIECE as usize) else {
                return Ok(0);
            };
            pieces.push(piece);
        }
        let addresses: Vec<Address> = pieces.iter().map(DeviceMemory::address).collect();
        let there = DeviceMemory::new(wanted * size_of::<Address>())?;
        // SAFETY: the block is as long as the addresses, which stay until the stream has been waited for.
        let copied = unsafe { copy_in(&parts.stream, there.address(), cast_slice(&addresses)) };
        let waited = wait(&parts.stream);
        copied.and(waited)?;
        copies.pieces = pieces;
        copies.piece_addresses = Some(there);
        Ok(copies.covered())
    }

    /// Memory for up to `count` blocks of `size` bytes on their way to the device, as words: slots, or lines.
    ///
    /// # Errors
    /// [`Error`](super::error::Error) when the host cannot pin so much.
    pub fn staging(&mut self, count: usize, size: usize) -> Result<&mut [u64]> {
        let _entered = self.device.enter()?;
        let staged = &mut self.parts.staged;
        staged.reserve(count * (size + size_of::<Address>()))?;
        Ok(cast_slice_mut(&mut staged.bytes_mut()[..count * size]))
    }

    /// Stores slots where they belong, each with those behind it up to `count`, whose bytes are in the
    /// [staging](Self::staging) memory in this order, and waits until they are there.
    ///
    /// # Errors
    /// [`Error`](super::error::Error). What is there then means nothing.
    ///
    /// # Panics
    /// If some are in no level that there is [room](Self::make_room) for, or if there was no staging memory for as many.
    pub fn store_slots(&mut self, slots: &[SlotId], count: u32) -> Result<()> {
        let (size, bucket_size) = (count * SLOT, self.shape.bucket_size);
        self.store_blocks(slots, size, |tables, id| {
            let copies = &tables[usize::from(id.partition)];
            let level = id.level.checked_sub(copies.bottom);
            let level = level.and_then(|nth| copies.levels.get(nth as usize));
            let level = level.expect("there is room for the level");
            let within = id.bucket * u64::from(bucket_size) + u64::from(id.number * SLOT);
            let end = within + u64::from(size);
            assert!(end <= level.len() as u64, "the level has the slots");
            level.address() + within
        })
    }

    /// Stores lines, each of a partition's file by its number there, as [`store_slots`](Self::store_slots) does slots.
    ///
    /// # Errors
    /// [`Error`](super::error::Error). What is there then means nothing.
    ///
    /// # Panics
    /// If one is not [covered](Self::cover), or if there was no staging memory for as many.
    pub fn store_lines(&mut self, lines: &[(u8, u64)]) -> Result<()> {
        self.store_blocks(lines, LINE, |tables, &(partition, line)| {
            let (at, piece) = (line * u64::from(LINE), u64::from(PIECE));
            let pieces = &tables[usize::from(partition)].pieces;
            let found = usize::try_from(at / piece)
                .ok()
                .and_then(|nth| pieces.get(nth));
            found.expect("the line is covered").address() + at % piece
        })
    }

    /// Stores blocks of `size` bytes, which are staged, at their targets.
    fn store_blocks<T>(
        &mut self,
        blocks: &[T],
        size: u32,
        target_of: impl Fn(&[Copies], &T) -> Address,
    ) -> Result<()> {
        let _entered = self.device.enter()?;
        let Parts {
            stream,
            kernels,
            tables,
            staged,
            arrived,
            ..
        } = &mut *self.parts;
        let (bytes, rest) = staged
            .bytes_mut()
            .split_at_mut(blocks.len() * size as usize);
        let targets: &mut [Address] = cast_slice_mut(&mut rest[..blocks.len() * 8]);
        for (target, block) in targets.iter_mut().zip(blocks) {
            *target = target_of(tables, block);
        }
        let len = bytes.len() + size_of_val(targets);
        arrived.reserve(len)?;
        let (at, targets) = (arrived.address(), arrived.address() + bytes.len() as u64);
        let count = u32::try_from(blocks.len()).expect("they are staged in memory");
        let units = size / UNIT;
        let threads = count.saturating_mul(units);
        // SAFETY: the block is as long as what is copied there, each target is in a level or a piece that stays, with room
        // for a block, and nobody changes the staged bytes before the stream has been waited for.
        let launched = unsafe {
            copy_in(stream, at, &staged.bytes()[..len]).and_then(|()| {
                let arguments = [
                    bytes_of(&at),
                    bytes_of(&targets),
                    bytes_of(&count),
                    bytes_of(&units),
                ];
                (&*stream).put(
                    kernels.store_blocks,
                    kernels.blocks.for_threads(threads),
                    &arguments,
                )
            })
        };
        let waited = wait(stream);
        launched.and(waited)
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
        let exchange = &mut parts.exchanges[exchange];
        exchange.size = size;
        let layout = QuestionsLayout::of(size);
        exchange.asked.reserve(layout.end)?;
        let asked = exchange.asked.bytes_mut();
        let (ends, rest) = asked[..layout.end].split_at_mut(layout.keys);
        let (keys, partitions) = rest.split_at_mut(size.key_bytes);
        Ok(Questions {
            ends: cast_slice_mut(ends),
            keys,
            partitions: &mut partitions[layout.partitions - layout.keys - size.key_bytes..],
        })
    }

    /// Asks the [questions](Self::questions) of an exchange.
    ///
    /// # Errors
    /// [`Error`](super::error::Error).
    pub fn ask(&mut self, exchange: usize, terms: &Terms) -> Result<()> {
        let _entered = self.device.enter()?;
        let parts = &mut *self.parts;
        let exchange = &mut parts.exchanges[exchange];
        exchange.make_room(terms.values_wanted, parts.values_len)?;
        if parts.views_differ {
            // They may still be on their way from there.
            wait(&parts.stream)?;
            let views = parts.tables.iter().map(|copies| copies.view(self.shape));
            parts.told = views.collect();
        }
        let views = match parts.views_differ {
            true => &parts.told[..],
            false => &[],
        };
        exchange.is_under_way = true;
        let on = (&parts.stream, &parts.kernels);
        let views = (parts.views.address(), views);
        exchange.launch(on, views, terms)?;
        parts.views_differ = false;
        Ok(())
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
        let used = exchange.fetch(&parts.back)?;
        if used > 0 {
            // Who finds no room now has it the next time.
            parts.values_len = used;
        }
        Ok(())
    }

    /// What an exchange has answered, once its values, which were [fetched](Self::fetch), have arrived.
    ///
    /// # Errors
    /// [`Error`](super::error::Error).
    pub fn answers(&mut self, exchange: usize) -> Result<Answers<'_>> {
        let entered = self.device.enter()?;
        let exchange = &mut self.parts.exchanges[exchange];
        exchange.have_arrived.wait()?;
        exchange.is_under_way = false;
        drop(entered);
        Ok(exchange.answers())
    }
}

impl Parts {
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

impl Exchange {
    fn new() -> Result<Self> {
        Ok(Self {
            asked: PinnedMemory::empty(),
            questions: DeviceMemory::new(0)?,
            answers: DeviceMemory::new(0)?,
            answered: PinnedMemory::empty(),
            is_answered: Event::new()?,
            values: DeviceMemory::new(0)?,
            values_arrived: PinnedMemory::empty(),
            have_arrived: Event::new()?,
            size: Size::default(),
            value_bytes: 0,
            is_under_way: false,
        })
    }

    /// Makes room for what is asked and answered, and for so many bytes of values at least, if they are wanted.
    fn make_room(&mut self, values_wanted: bool, values_len: usize) -> Result<()> {
        let answered = AnswersLayout::of(self.size.len).end;
        let asked = QuestionsLayout::of(self.size).end;
        self.questions.reserve(asked)?;
        self.answers.reserve(answered)?;
        self.answered.reserve(answered)?;
        if values_wanted {
            let usual = self.size.len * USUAL_VALUE;
            self.values.reserve(values_len.max(usual))?;
        }
        Ok(())
    }

    /// Puts questions and answers on the stream, for the tables of these `views` at this address, which are told unless
    /// the device knows them.
    fn launch(
        &mut self,
        (stream, kernels): (&Stream, &Kernels),
        (views, told): (Address, &[PartitionView]),
        terms: &Terms,
    ) -> Result<()> {
        let len = self.size.len;
        let (asked, answered) = (QuestionsLayout::of(self.size), AnswersLayout::of(len));
        let at = self.questions.address();
        let questions = QuestionsView {
            ends: at,
            keys: at + asked.keys as u64,
            partitions: match self.size.has_partitions {
                true => at + asked.partitions as u64,
                false => 0,
            },
            excluded: terms.excluded,
            usable: terms.usable,
            route_seed: terms.route.0,
            partition_count: terms.route.1,
            len: u32::try_from(len).expect("keys are asked for in parts"),
            values_wanted: u32::from(terms.values_wanted),
            unused: 0,
        };
        let at = self.answers.address();
        let answers = AnswersView {
            records: at,
            chunks: at + answered.chunks as u64,
            used: at + answered.used as u64,
            lens: at + answered.lens as u64,
            values: self.values.address(),
            room: self.values.len() as u64,
        };
        let chunks = u32::try_from(len.div_ceil(CHUNK)).expect("they are fewer than keys");
        let blocks = kernels.blocks.for_threads(chunks.saturating_mul(THREADS));
        let asked = &self.asked.bytes()[..asked.end];
        let back = &mut self.answered.bytes_mut()[..answered.end];
        // SAFETY: the blocks are as long as the kernel takes them to be. Each number of a partition has a view, whose
        // levels and pieces stay. Nobody looks at the answers, or changes what is copied, while the exchange is under way.
        unsafe {
            copy_in(stream, views, cast_slice(told))?;
            copy_in(stream, questions.ends, asked)?;
            fill(stream, answers.used, 0, size_of::<u64>())?;
            let arguments = [bytes_of(&views), bytes_of(&questions), bytes_of(&answers)];
            (&*stream).put(kernels.find_records, blocks, &arguments)?;
            copy_out(stream, back, answers.records)?;
        }
        self.is_answered.record(stream)
    }

    /// Puts the way back of all values on the stream; gives how many bytes there would be if there was room for all.
    fn fetch(&mut self, stream: &Stream) -> Result<usize> {
        let layout = AnswersLayout::of(self.size.len);
        let used: &[u64] = cast_slice(&self.answered.bytes()[layout.used..layout.lens]);
        let used = usize::try_from(used[0]).unwrap_or(usize::MAX);
        self.value_bytes = used.min(self.values.len());
        self.values_arrived.reserve(self.value_bytes)?;
        let arrived = &mut self.values_arrived.bytes_mut()[..self.value_bytes];
        // SAFETY: the block on the device is as long, and nobody looks at these bytes while the exchange is under way.
        unsafe { copy_out(stream, arrived, self.values.address()) }?;
        self.have_arrived.record(stream)?;
        Ok(used)
    }

    fn answers(&self) -> Answers<'_> {
        let layout = AnswersLayout::of(self.size.len);
        let answers = self.answered.bytes();
        Answers {
            records: cast_slice(&answers[..layout.chunks]),
            lens: cast_slice(&answers[layout.lens..layout.end]),
            chunks: cast_slice(&answers[layout.chunks..layout.used]),
            values: &self.values_arrived.bytes()[..self.value_bytes],
        }
    }
}

/// Where the parts of questions are in their block.
struct QuestionsLayout {
    keys: usize,
    partitions: usize,
    end: usize,
}

impl QuestionsLayout {
    fn of(size: Size) -> Self {
        let keys = size.len * size_of::<u32>();
        // The device reads keys as words.
        let partitions = keys + size.key_bytes + size_of::<u64>();
        let numbers = if size.has_partitions { size.len } else { 0 };
        Self {
            keys,
            partitions,
            end: partitions + numbers,
        }
    }
}

/// Where the parts of answers are in their block.
struct AnswersLayout {
    chunks: usize,
    used: usize,
    lens: usize,
    end: usize,
}

impl AnswersLayout {
    fn of(len: usize) -> Self {
        let chunks = len * size_of::<u64>();
        let used = chunks + len.div_ceil(CHUNK) * size_of::<ChunkAnswer>();
        let lens = used + size_of::<u64>();
        Self {
            chunks,
            used,
            lens,
            end: lens + len * size_of::<u32>(),
        }
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
            store_blocks: module.function("store_blocks")?,
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
        let _ = wait(&self.parts.back);
        // SAFETY: nobody uses it after this.
        unsafe { ManuallyDrop::drop(&mut self.parts) };
    }
}

static_assertions::assert_impl_all!(Locator: Send);
