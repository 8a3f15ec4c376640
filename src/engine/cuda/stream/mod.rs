//! A stream and the buffers of the batch that is on it.

pub mod address_sort;
mod staging;

use std::sync::Arc;

use rayon::ThreadPool;

use crate::Result;
use crate::gpu::abi::{AddressSortView, Counters, GroupsView};
use crate::gpu::batch::{answer_words, blocks, group_entries, groups_len};
use crate::gpu::budget::{IndexBudget, Quota};
use crate::gpu::event::Event;
use crate::gpu::launch::{Graphs, Launches};
use crate::gpu::memory::Address;
use crate::gpu::memory::{DeviceMemory, PinnedMemory, copy_out, fill, wait};
use crate::gpu::order::{Bins, OrderMemory};
use crate::gpu::stream::Stream;
use crate::pool::hash_filter::hash_seed;
pub use staging::CALLER_ALONE_BYTES_MAX;
use staging::Staging;

/// One batch at a time, and memory for it that stays from one to the next.
pub struct BatchStream {
    pub stream: Stream,
    /// It has no buffers, and gets none.
    pub is_plain: bool,
    graphs: Graphs,
    keys: DeviceMemory,
    values: DeviceMemory,
    answers: DeviceMemory,
    pending: DeviceMemory,
    groups: DeviceMemory,
    order: OrderMemory,
    counters: DeviceMemory,
    quota: Arc<Quota>,
    /// Bytes that these may have.
    bytes_max: u64,
    staging: Staging,
    /// Values for the host, or where it finds or puts them.
    fetched: PinnedMemory,
    /// Counters, then answer words.
    outcome: PinnedMemory,
}

/// A batch in device memory: where it is, and how long.
#[derive(Debug, Clone, Copy)]
pub struct Operands {
    /// Keys, one behind the other, 8-byte aligned.
    pub keys: Address,
    /// Values, one behind the other, or the offsets of the records that have them; 0 for the verbs
    /// that have none.
    pub values: Address,
    /// One bit a position, in whole 64-bit words.
    pub answers: Address,
    /// Positions.
    pub len: u32,
    /// Whether the batch came from the host, which waits for the answers.
    pub on_host: bool,
    /// Whether the values are in records already.
    pub stored: bool,
}

/// What a batch has as its values.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'v> {
    /// Values.
    Values(&'v [u8]),
    /// Room for so many bytes of them.
    Room(usize),
    /// The [offsets](BatchStream::offsets) that they have in the file.
    Offsets,
}

impl BatchStream {
    /// A stream of the current device.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn new(budget: &IndexBudget) -> Result<Self> {
        let quota = &budget.buffers;
        Ok(Self {
            stream: Stream::new()?,
            is_plain: false,
            graphs: Graphs::default(),
            keys: DeviceMemory::empty(quota),
            values: DeviceMemory::empty(quota),
            answers: DeviceMemory::empty(quota),
            pending: DeviceMemory::empty(quota),
            groups: DeviceMemory::empty(quota),
            order: OrderMemory::new(quota),
            counters: DeviceMemory::new(quota, size_of::<Counters>())?,
            quota: Arc::clone(quota),
            bytes_max: budget.stream_bytes_max,
            staging: Staging::empty(),
            fetched: PinnedMemory::empty(),
            outcome: PinnedMemory::empty(),
        })
    }

    /// Frees the buffers if those for a part of `len` positions, with so many bytes of keys and of values, have no room beside
    /// those for others in the budget. The stream has come past what uses them.
    pub fn make_way(&mut self, len: u32, keys: usize, values: usize) {
        let buffers = [
            &mut self.keys,
            &mut self.values,
            &mut self.answers,
            &mut self.pending,
            &mut self.groups,
        ];
        let wanted = blocks(len, keys, values);
        let all = buffers.iter().zip(wanted);
        let all: u64 = all.map(|(has, wanted)| wanted.max(has.len() as u64)).sum();
        let order = OrderMemory::len_for(len).max(self.order.device_bytes());
        if all + order + self.counters.len() as u64 > self.bytes_max {
            for buffer in buffers {
                *buffer = DeviceMemory::empty(&self.quota);
            }
            self.order = OrderMemory::new(&self.quota);
        }
    }

    /// Kernels to be put on the stream together.
    pub fn launches(&mut self) -> Launches<'_> {
        Launches::new(&self.stream, &mut self.graphs)
    }

    /// Lets what comes next wait for what is on another stream now.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn follow(&self, other: &Stream) -> Result<()> {
        Ok(self.stream.wait_for(&event_on(other)?)?)
    }

    /// Sends keys and payload on their way to the device, `copiers` copying what is long.
    ///
    /// # Safety
    /// Keys and values must stay as they are until the stream has come past this.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub unsafe fn stage(
        &mut self,
        copiers: Option<&ThreadPool>,
        len: u32,
        keys: &[u8],
        payload: Payload,
    ) -> Result<Operands> {
        let room = match payload {
            Payload::Values(values) => values.len(),
            Payload::Room(room) => room,
            Payload::Offsets => len as usize * 8,
        };
        self.make_way(len, keys.len(), room);
        let values = match payload {
            Payload::Values(values) => values,
            Payload::Room(_) => &[],
            Payload::Offsets => &self.fetched.bytes()[..room],
        };
        self.keys.reserve(keys.len())?;
        self.values.reserve(room)?;
        self.answers.reserve(answer_words(len) as usize * 8)?;
        let operands = [(self.keys.address(), keys), (self.values.address(), values)];
        // SAFETY: the blocks are as long, and are `self`'s, whose next batch comes when the stream has come
        // past this one. The caller keeps keys and values until then; offsets are `self`'s.
        unsafe { self.staging.send(copiers, &self.stream, operands)? };
        Ok(Operands {
            keys: self.keys.address(),
            values: self.values.address(),
            answers: self.answers.address(),
            len,
            on_host: true,
            stored: matches!(payload, Payload::Offsets),
        })
    }

    /// Zeroed counters for the next launch.
    pub fn counters(&mut self) -> Result<Address> {
        // SAFETY: the block is ours.
        unsafe {
            fill(
                &self.stream,
                self.counters.address(),
                0,
                self.counters.len(),
            )?
        };
        Ok(self.counters.address())
    }

    /// One byte for each of `len` positions.
    pub fn pending(&mut self, len: u32) -> Result<Address> {
        self.pending.reserve(len as usize)?;
        Ok(self.pending.address())
    }

    /// Which of `len` positions await slots or records, waiting for the stream; all of them if nothing was
    /// launched for so many.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn fetch_pending(&self, len: usize) -> Result<Vec<u8>> {
        let mut pending = vec![1; len];
        if self.pending.len() < len {
            return Ok(pending);
        }
        // SAFETY: the block is as long, and nobody looks before the wait.
        unsafe { copy_out(&self.stream, &mut pending, self.pending.address())? };
        wait(&self.stream)?;
        Ok(pending)
    }

    /// Memory for the order of `len` positions in a file of `file_len` bytes.
    pub fn order(&mut self, len: u32, file_len: u64) -> Result<AddressSortView> {
        Ok(self
            .order
            .view(&self.stream, len, Bins::of(len, file_len))?)
    }

    /// Where the counters of a launch are, whatever they hold.
    pub fn counters_address(&self) -> Address {
        self.counters.address()
    }

    /// Memory for the groups of `len` positions, whatever it holds.
    pub fn groups(&mut self, len: u32) -> Result<GroupsView> {
        let entries = group_entries(len);
        self.groups.reserve(groups_len(len))?;
        let claims = self.groups.address();
        let array = entries as u64 * 4;
        Ok(GroupsView {
            claims,
            last: claims + array,
            first: claims + 2 * array,
            entry: claims + 3 * array,
            mask: entries as u64 - 1,
            seed: hash_seed(),
        })
    }

    /// Where the device puts the counters, and behind them the answers of `operands` if the host
    /// wants them: so many words.
    pub fn outcome(&mut self, operands: &Operands) -> Result<(u32, Address)> {
        let wanted = operands.on_host;
        let words = if wanted {
            answer_words(operands.len)
        } else {
            0
        };
        Ok((words, self.outcome_of(words)?))
    }

    /// Where the device puts the counters and so many words of answers.
    pub fn outcome_of(&mut self, words: u32) -> Result<Address> {
        self.outcome
            .reserve(size_of::<Counters>() + words as usize * 8)?;
        Ok(self.outcome.address())
    }

    /// Sends `len` values of so many bytes on their way back.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn fetch_values(&mut self, len: u32, size: u32) -> Result<()> {
        let len = len as usize * size as usize;
        self.fetched.reserve(len)?;
        let to = &mut self.fetched.bytes_mut()[..len];
        // SAFETY: both blocks are as long, and no one looks before the stream has come past.
        unsafe { copy_out(&self.stream, to, self.values.address())? };
        Ok(())
    }

    /// The values that came back, once the stream has come past them.
    pub fn fetched_values(&self) -> &[u8] {
        self.fetched.bytes()
    }

    /// Where the device puts the offsets of `len` values.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn room_for_offsets(&mut self, len: u32) -> Result<Address> {
        self.fetched.reserve(len as usize * 8)?;
        Ok(self.fetched.address())
    }

    /// Where the host puts them, beside the stream.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn offsets_mut(&mut self, len: u32) -> Result<(&Stream, &mut [u64])> {
        self.room_for_offsets(len)?;
        let offsets = &mut self.fetched.bytes_mut()[..len as usize * 8];
        Ok((&self.stream, bytemuck::cast_slice_mut(offsets)))
    }

    /// The offsets of `len` values, once the stream has come past those who put them there.
    pub fn offsets(&self, len: u32) -> &[u64] {
        bytemuck::cast_slice(&self.fetched.bytes()[..len as usize * 8])
    }

    /// The counters that came back, once the stream has come past them.
    pub fn fetched_counters(&self) -> Counters {
        bytemuck::pod_read_unaligned(&self.outcome.bytes()[..size_of::<Counters>()])
    }

    /// The answers that came back, in 64-bit words.
    pub fn fetched_answers(&self, len: u32) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.outcome.bytes()[size_of::<Counters>()..][..answer_words(len) as usize * 8]
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("chunks of eight")))
    }
}

impl Drop for BatchStream {
    fn drop(&mut self) {
        // After an error a batch may still be using the buffers that are about to be freed.
        let _ = self.stream.wait();
    }
}

/// What comes to pass when the stream has done what is on it now.
pub fn event_on(stream: &Stream) -> Result<Event> {
    let event = Event::new()?;
    event.record(stream)?;
    Ok(event)
}
