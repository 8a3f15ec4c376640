//! Questions that the device is asked and what it answers, in buffers of their own: several may be under way.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable, bytes_of, cast_slice, cast_slice_mut};

use super::column::Target;
use super::{Kernels, PARTITIONS, PartitionView};
use crate::gpu::budget::Quota;
use crate::gpu::error::Result;
use crate::gpu::event::Event;
use crate::gpu::launch::{Launch, THREADS};
use crate::gpu::memory::{Address, DeviceMemory, PinnedMemory, copy_in, copy_out};
use crate::gpu::stream::Stream;

/// Keys whose values a block of threads puts side by side.
pub const CHUNK: usize = 512;

/// Beside where a value ends: the device does not know it.
pub const NO_VALUE: u32 = 1 << 31;

/// The same: the device knows that there is none.
pub const ABSENT: u32 = 1 << 30;

/// The caller says nothing of a key.
pub const ASKED: u32 = u32::MAX;

/// In place of where the values of a chunk begin, if there was no room for them.
const NO_ROOM: u64 = u64::MAX;

/// Bytes of a value for which there is room before anything is known of values.
const USUAL_VALUE: usize = 128;

/// The values of an exchange have this part of a budget of buffers at most.
const VALUES_FRACTION: u64 = 8;

/// This part of the room for values as long as the last ones is added.
const SPARE_FRACTION: usize = 16;

/// Keys that are asked for, as a launch sees them.
#[derive(Debug, Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct QuestionsView {
    ends: Address,
    keys: Address,
    /// Or zero: all are asked for.
    given: Address,
    /// Or zero: a hash of each key says which.
    partitions: Address,
    excluded: u64,
    usable: Usable,
    route_seed: u64,
    partition_count: u32,
    len: u32,
    values_wanted: u32,
    absence_known: u32,
}

/// What is known of them, as a launch sees it.
#[derive(Debug, Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct AnswersView {
    records: Address,
    chunks: Address,
    used: Address,
    ends: Address,
    sources: Address,
    values: Address,
    room: u64,
}

/// Where the caller puts what he asks for.
pub struct Questions<'q> {
    /// Where each key ends among the bytes of all.
    pub ends: &'q mut [u32],
    /// All keys, one behind the other.
    pub keys: &'q mut [u8],
    /// For each key [`ASKED`], or what the caller says of it, if he does: [`NO_VALUE`], [`ABSENT`], or of how many bytes its
    /// value is. Then so many are left among all values, and mean nothing.
    pub given: &'q mut [u32],
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
    /// The caller says what some have.
    pub has_given: bool,
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
    /// A key that is in no slot has no value: it is nowhere else, and none was being moved while the slots were copied.
    pub absence_known: bool,
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
    /// of its partition; 0 if none does. Another key may have the fingerprint.
    pub records: &'a [u64],
    /// Where each key's value ends among all; beside that perhaps [`NO_VALUE`] or [`ABSENT`].
    ends: &'a [u32],
    chunks: &'a [ChunkAnswer],
    values: &'a [u8],
    placed: Option<usize>,
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
    ends: &'a [u32],
    /// The sum of all lengths.
    pub bytes: usize,
    /// Keys of which nothing is known.
    pub left: usize,
}

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Where its value is among all.
    Value(Range<usize>),
    /// That it has none.
    Absent,
    /// Nothing: the device has no copy of its record, or not a whole one.
    Nothing,
}

impl Chunk<'_> {
    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// What is known of each key.
    pub fn said(&self) -> impl Iterator<Item = Said> {
        let mut start = self.start;
        self.ends.iter().map(move |&end| {
            let span = start..(end & !NO_VALUE & !ABSENT) as usize;
            start = span.end;
            match (end & NO_VALUE, end & ABSENT) {
                (0, 0) => Said::Value(span),
                (0, _) => Said::Absent,
                _ => Said::Nothing,
            }
        })
    }
}

impl<'a> Answers<'a> {
    /// The values of all keys, unless they were [placed](Self::placed).
    pub fn values(&self) -> &'a [u8] {
        self.values
    }

    /// Where each of these ends, with [`ABSENT`] for a key that has none, if all of its [chunk](Self::chunk) are known.
    pub fn ends(&self) -> &'a [u32] {
        self.ends
    }

    /// How many bytes all values have, each of which is known, if they are behind those of the last exchange in the
    /// [column](super::Locator::begin_column).
    pub fn placed(&self) -> Option<usize> {
        self.placed
    }

    /// What is known of the keys of a chunk, if there was room for all.
    pub fn chunk(&self, chunk: usize) -> Option<Chunk<'a>> {
        let ChunkAnswer { start, bytes, left } = *self.chunks.get(chunk)?;
        Some(Chunk {
            start: usize::try_from(start).ok().filter(|_| start != NO_ROOM)?,
            ends: self.ends.chunks(CHUNK).nth(chunk)?,
            bytes: bytes as usize,
            left: left as usize,
        })
    }
}

/// Questions on their way to the device and there, and their answers there and on their way back.
pub struct Exchange {
    asked: PinnedMemory,
    questions: DeviceMemory,
    answers: DeviceMemory,
    answered: PinnedMemory,
    /// Comes to pass when these are.
    pub is_answered: Event,
    values: DeviceMemory,
    values_arrived: PinnedMemory,
    pub have_arrived: Event,
    /// What was asked last.
    size: Size,
    /// Of its answers.
    value_bytes: usize,
    /// They go to a column.
    pub is_placed: bool,
    /// The device may have to do with it.
    pub is_under_way: bool,
}

impl Exchange {
    pub fn new(quota: &Arc<Quota>) -> Result<Self> {
        Ok(Self {
            asked: PinnedMemory::empty(),
            questions: DeviceMemory::empty(quota),
            answers: DeviceMemory::empty(quota),
            answered: PinnedMemory::empty(),
            is_answered: Event::new()?,
            values: DeviceMemory::empty(quota),
            values_arrived: PinnedMemory::empty(),
            have_arrived: Event::new()?,
            size: Size::default(),
            value_bytes: 0,
            is_placed: false,
            is_under_way: false,
        })
    }

    /// See [`Locator::questions`](super::Locator::questions).
    pub fn questions(&mut self, size: Size) -> Result<Questions<'_>> {
        self.size = size;
        self.is_placed = false;
        let layout = QuestionsLayout::of(size);
        self.asked.reserve(layout.end)?;
        let asked = self.asked.bytes_mut();
        let (words, rest) = asked[..layout.end].split_at_mut(layout.keys);
        let (ends, given) = words.split_at_mut(layout.given);
        let (keys, partitions) = rest.split_at_mut(size.key_bytes);
        Ok(Questions {
            ends: cast_slice_mut(ends),
            given: cast_slice_mut(given),
            keys,
            partitions: &mut partitions[layout.partitions - layout.keys - size.key_bytes..],
        })
    }

    /// Bytes of device memory that questions and answers of such a size still need.
    pub fn missing_for(&self, size: Size) -> u64 {
        let missing = |has: &DeviceMemory, wanted: usize| match has.len() < wanted {
            true => wanted.next_power_of_two(),
            false => 0,
        };
        let asked = missing(&self.questions, QuestionsLayout::of(size).end);
        let answers = missing(&self.answers, AnswersLayout::of(size.len).device_end);
        (asked + answers) as u64
    }

    /// Makes room for what is asked and answered, and for values of so many bytes each, if they are wanted. For these there
    /// may be less within a budget: some of them are then not given.
    pub fn make_room(
        &mut self,
        values_wanted: bool,
        value_len: usize,
        quota: &Quota,
    ) -> Result<()> {
        let answers = AnswersLayout::of(self.size.len);
        let asked = QuestionsLayout::of(self.size).end;
        self.questions.reserve(asked)?;
        self.answers.reserve(answers.device_end)?;
        self.answered.reserve(answers.end)?;
        if values_wanted {
            // Some waves have longer ones than others.
            let value_len = (value_len + value_len / SPARE_FRACTION).max(USUAL_VALUE);
            let most =
                (quota.bytes_max() / VALUES_FRACTION).min(quota.left() + self.values.len() as u64);
            let most = 1_u64 << most.max(1).ilog2();
            let wanted = self.size.len * value_len;
            self.values
                .reserve(usize::try_from(most).map_or(wanted, |most| wanted.min(most)))?;
        }
        Ok(())
    }

    /// Puts questions and answers on the stream, for the tables of these `views` at this address, which are told unless
    /// the device knows them.
    pub fn launch(
        &mut self,
        (stream, kernels): (&Stream, &Kernels),
        (views, told): (Address, &[PartitionView]),
        terms: &Terms,
    ) -> Result<()> {
        let (asked, answered) = (
            QuestionsLayout::of(self.size),
            AnswersLayout::of(self.size.len),
        );
        let len = u32::try_from(self.size.len).expect("keys are asked for in parts");
        let at = self.questions.address();
        let questions = QuestionsView {
            ends: at,
            keys: at + asked.keys as u64,
            given: match self.size.has_given {
                true => at + asked.given as u64,
                false => 0,
            },
            partitions: match self.size.has_partitions {
                true => at + asked.partitions as u64,
                false => 0,
            },
            excluded: terms.excluded,
            usable: terms.usable,
            route_seed: terms.route.0,
            partition_count: terms.route.1,
            len,
            values_wanted: u32::from(terms.values_wanted),
            absence_known: u32::from(terms.absence_known),
        };
        let at = self.answers.address();
        let answers = AnswersView {
            records: at,
            chunks: at + answered.chunks as u64,
            used: at + answered.used as u64,
            ends: at + answered.ends as u64,
            sources: at + answered.sources as u64,
            values: self.values.address(),
            room: self.values.len() as u64,
        };
        let chunks = u32::try_from(self.size.len.div_ceil(CHUNK)).expect("fewer than keys");
        let blocks = kernels.blocks.for_threads(chunks.saturating_mul(THREADS));
        let asked = &self.asked.bytes()[..asked.end];
        let back = &mut self.answered.bytes_mut()[..answered.end];
        // SAFETY: the blocks are as long as the kernel takes them to be. Each number of a partition has a view, whose
        // levels and pieces stay. Nobody looks at the answers, or changes what is copied, while the exchange is under way.
        unsafe {
            copy_in(stream, views, cast_slice(told))?;
            copy_in(stream, questions.ends, asked)?;
            let arguments = [bytes_of(&views), bytes_of(&questions), bytes_of(&answers)];
            (&*stream).put(kernels.find_records, blocks, &arguments)?;
            let arguments = [bytes_of(&len), bytes_of(&answers)];
            (&*stream).put(kernels.place_values, blocks, &arguments)?;
            copy_out(stream, back, answers.records)?;
        }
        self.is_answered.record(stream)
    }

    /// Puts the way back of all values on the stream: to the `column`, if there is one, it has room and all values are known.
    pub fn fetch(&mut self, stream: &Stream, column: Option<&mut Target>) -> Result<Fetched> {
        let fetched = self.fetched();
        let column = column.filter(|column| fetched.is_whole && column.room() >= fetched.bytes);
        self.is_placed = column.is_some();
        let arrived = match column {
            Some(column) => {
                self.value_bytes = fetched.bytes;
                column.take(fetched.bytes)
            }
            None => {
                self.value_bytes = fetched.bytes.min(self.values.len());
                self.values_arrived.reserve(self.value_bytes)?;
                &mut self.values_arrived.bytes_mut()[..self.value_bytes]
            }
        };
        // SAFETY: the block on the device is as long, and nobody looks at these bytes while the exchange is under way.
        unsafe { copy_out(stream, arrived, self.values.address()) }?;
        self.have_arrived.record(stream)?;
        Ok(fetched)
    }

    fn fetched(&self) -> Fetched {
        let layout = AnswersLayout::of(self.size.len);
        let answers = self.answered.bytes();
        let used: &[u64] = cast_slice(&answers[layout.used..layout.ends]);
        let chunks: &[ChunkAnswer] = cast_slice(&answers[layout.chunks..layout.used]);
        let left: usize = chunks.iter().map(|chunk| chunk.left as usize).sum();
        let has_room = chunks.iter().all(|chunk| chunk.start != NO_ROOM);
        Fetched {
            keys: self.size.len,
            known: self.size.len.saturating_sub(left),
            bytes: usize::try_from(used[0]).unwrap_or(usize::MAX),
            is_whole: left == 0 && has_room,
        }
    }

    pub fn answers(&self) -> Answers<'_> {
        let layout = AnswersLayout::of(self.size.len);
        let answers = self.answered.bytes();
        Answers {
            records: cast_slice(&answers[..layout.chunks]),
            ends: cast_slice(&answers[layout.ends..layout.end]),
            chunks: cast_slice(&answers[layout.chunks..layout.used]),
            values: match self.is_placed {
                true => &[],
                false => &self.values_arrived.bytes()[..self.value_bytes],
            },
            placed: self.is_placed.then_some(self.value_bytes),
        }
    }
}

/// What is fetched of an exchange.
pub struct Fetched {
    pub keys: usize,
    /// Of these, how many are known.
    pub known: usize,
    /// Bytes that they have, or would have if there was room for all.
    pub bytes: usize,
    /// All are known, and there was room.
    pub is_whole: bool,
}

/// Where the parts of questions are in their block.
struct QuestionsLayout {
    given: usize,
    keys: usize,
    partitions: usize,
    end: usize,
}

impl QuestionsLayout {
    fn of(size: Size) -> Self {
        let given = size.len * size_of::<u32>();
        let keys = given * if size.has_given { 2 } else { 1 };
        // The device reads keys as words.
        let partitions = keys + size.key_bytes + size_of::<u64>();
        let numbers = if size.has_partitions { size.len } else { 0 };
        Self {
            given,
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
    ends: usize,
    /// Of what the host is told.
    end: usize,
    sources: usize,
    device_end: usize,
}

impl AnswersLayout {
    fn of(len: usize) -> Self {
        let chunks = len * size_of::<u64>();
        let used = chunks + len.div_ceil(CHUNK) * size_of::<ChunkAnswer>();
        let ends = used + size_of::<u64>();
        let end = ends + len * size_of::<u32>();
        let sources = end.next_multiple_of(size_of::<Address>());
        Self {
            chunks,
            used,
            ends,
            end,
            sources,
            device_end: sources + len * size_of::<Address>(),
        }
    }
}
