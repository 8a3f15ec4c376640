//! Compaction of sorted files on the device (gLSM §4, §5). Data blocks go in as they stand in their files, and new ones
//! come out, the same bytes that the host would make. Several jobs are under way at a time, each on a lane of its own,
//! so that one's copies go beside another one's kernels.

pub mod abi;
mod kernels;
mod lane;

use std::mem::ManuallyDrop;

use bytemuck::cast_slice;
use parking_lot::Mutex;

use super::device::Device;
use super::error::Result;
use super::memory::wait;
use abi::{FILTER_BLOCK, FilterRange, InputBlock, OutputBlock, Problems, Status, Use, View};
use kernels::Kernels;
use lane::{Lane, Made, filter_bytes, uses_at};

/// See the [module](self).
pub struct Compactor {
    // Goes before the device whose memory it has.
    parts: ManuallyDrop<Parts>,
    device: Device,
}

struct Parts {
    kernels: Kernels,
    /// Those that nobody uses.
    lanes: Mutex<Vec<Lane>>,
}

/// What is to be made of the input.
#[derive(Debug)]
pub struct Plan<'p> {
    /// Runs one behind the other, the newest first; each in the order of its keys.
    pub blocks: &'p [InputBlock],
    /// Keys from this one on,
    pub from: Option<&'p [u8]>,
    /// and before this one.
    pub to: Option<&'p [u8]>,
    /// Bytes that all keys have in common at their beginning.
    pub prefix: usize,
    /// A length of a key.
    pub key_len: usize,
    /// What entries of a block count, and those of a file.
    pub block_bytes: u64,
    pub file_bytes: u64,
    /// Values from this length on, in bytes, are not the device's.
    pub value_bytes_min: u64,
    /// Of the hashes of keys.
    pub hash_seed: u64,
    /// Numbers of the value files to which entries refer, ascending.
    pub value_files: &'p [u64],
}

/// New blocks that lack their checksums.
#[derive(Debug)]
pub struct NewBlocks<'t> {
    pub blocks: &'t [OutputBlock],
    /// First and last key of each block, `stride` bytes each.
    ends: &'t [u8],
    stride: usize,
    /// Entries of all of them.
    pub entries: usize,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl NewBlocks<'_> {
    /// The first key of a block.
    pub fn first_key(&self, nth: usize) -> &[u8] {
        let at = 2 * nth * self.stride;
        &self.ends[at..][..self.blocks[nth].first_key_len as usize]
    }

    /// The last key of a block.
    pub fn last_key(&self, nth: usize) -> &[u8] {
        let at = (2 * nth + 1) * self.stride;
        &self.ends[at..][..self.blocks[nth].last_key_len as usize]
    }
}

/// What a job has made.
#[derive(Debug)]
pub struct Compacted<'t> {
    /// The blocks, one behind the other.
    pub bytes: &'t [u8],
    /// The filters of all files.
    filters: &'t [u8],
    /// For each file, what it has in each value file.
    pub uses: &'t [Use],
}

impl Compacted<'_> {
    /// The filter of a file.
    pub fn filter(&self, range: &FilterRange) -> &[u8] {
        &self.filters[range.first as usize * FILTER_BLOCK..][..range.blocks as usize * FILTER_BLOCK]
    }
}

impl Compactor {
    /// Opens the device with this ordinal and loads the kernels.
    ///
    /// # Errors
    /// [`Error`](super::error::Error) if there is no driver, no such device, or one that is too old.
    pub fn open(ordinal: u32) -> Result<Self> {
        let device = Device::open(ordinal)?;
        let entered = device.enter()?;
        let kernels = Kernels::load(&device)?;
        drop(entered);
        Ok(Self {
            parts: ManuallyDrop::new(Parts {
                kernels,
                lanes: Mutex::new(Vec::new()),
            }),
            device,
        })
    }

    /// What the device is called.
    pub fn device_name(&self) -> &str {
        self.device.name()
    }

    /// Begins a job with so many bytes of data blocks.
    ///
    /// # Errors
    /// [`Error`](super::error::Error), also when there is no pinned memory left.
    pub fn begin(&self, bytes: usize) -> Result<Task<'_>> {
        let _entered = self.device.enter()?;
        let lane = self.parts.lanes.lock().pop();
        let mut lane = lane.map_or_else(Lane::new, Ok)?;
        let memory = lane.memory();
        lane.input.reserve(bytes)?;
        Ok(Task {
            memory,
            compactor: self,
            lane: Some(lane),
            bytes,
            view: View::default(),
            made: Made::default(),
        })
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        // Device memory is freed in the context of the calling thread.
        let _entered = self.device.enter();
        // SAFETY: nobody uses them after this.
        unsafe { ManuallyDrop::drop(&mut self.parts) };
    }
}

static_assertions::assert_impl_all!(Compactor: Send, Sync);

/// A job.
pub struct Task<'c> {
    compactor: &'c Compactor,
    /// None after a failure.
    lane: Option<Lane>,
    /// What the lane had at first.
    memory: usize,
    bytes: usize,
    view: View,
    made: Made,
}

impl Task<'_> {
    /// Whether memory had to be allocated for it, which takes longer than the rest.
    pub fn is_first(&self) -> bool {
        let memory = self.lane.as_ref().map(Lane::memory);
        memory != Some(self.memory)
    }

    /// Where the data blocks go before the job is [merged](Self::merge).
    pub fn input(&mut self) -> &mut [u8] {
        let bytes = self.bytes;
        let lane = self.lane.as_mut();
        lane.map_or(&mut [], |lane| &mut lane.input.bytes_mut()[..bytes])
    }

    /// Makes the new blocks, without their checksums. `hides_nothing` says of the key of a tombstone whether it can go.
    /// Gives nothing if the device does not do such jobs, or if something is wrong with a block.
    ///
    /// # Errors
    /// [`Error`](super::error::Error), also when the device has no room for it.
    pub fn merge(
        &mut self,
        plan: &Plan,
        hides_nothing: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<NewBlocks<'_>>> {
        let _entered = self.compactor.device.enter()?;
        let Some(mut lane) = self.lane.take() else {
            return Ok(None);
        };
        let kernels = &self.compactor.parts.kernels;
        let merged = lane.merge(kernels, plan, self.bytes, hides_nothing);
        let waited = wait(&lane.stream);
        let merged = merged?;
        waited?;
        let lane = self.lane.insert(lane);
        let Some((view, made)) = merged else {
            return Ok(None);
        };
        (self.view, self.made) = (view, made);
        let (stride, count) = (view.stride as usize, view.new_blocks as usize);
        let answered = lane.answered.bytes();
        Ok(Some(NewBlocks {
            blocks: cast_slice(&answered[..count * size_of::<OutputBlock>()]),
            ends: &answered[self.made.ends..][..2 * stride * count],
            stride,
            entries: self.made.entries,
            bytes: self.made.bytes as u64,
        }))
    }

    /// Gives the blocks their checksums, with a seed for each one, and brings all to the host. `files` says of each block
    /// which of the new files it is of, and `filters` where each file's filter is to be. Gives nothing if an entry refers to another value file.
    ///
    /// # Errors
    /// [`Error`](super::error::Error).
    pub fn seal(
        &mut self,
        plan: &Plan,
        seeds: &[u64],
        files: &[u32],
        filters: &[FilterRange],
    ) -> Result<Option<Compacted<'_>>> {
        let _entered = self.compactor.device.enter()?;
        let Some(mut lane) = self.lane.take() else {
            return Ok(None);
        };
        let kernels = &self.compactor.parts.kernels;
        let uses = filters.len() * plan.value_files.len();
        let view = &mut self.view;
        let sealed = lane.seal(kernels, view, &self.made, (seeds, files, filters), uses);
        let waited = wait(&lane.stream);
        sealed?;
        waited?;
        let lane = self.lane.insert(lane);
        let made = &self.made;
        let answered = lane.answered.bytes();
        let status: Status = bytemuck::pod_read_unaligned(&answered[..size_of::<Status>()]);
        if Problems(status.problems) != Problems::NONE {
            return Ok(None);
        }
        Ok(Some(Compacted {
            bytes: &answered[made.content..][..made.bytes],
            filters: &answered[made.filters..][..filter_bytes(filters)],
            uses: cast_slice(&answered[uses_at(made, filters)..][..uses * size_of::<Use>()]),
        }))
    }
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            self.compactor.parts.lanes.lock().push(lane);
        }
    }
}
