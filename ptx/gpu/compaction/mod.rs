//! Compaction of sorted files on the device (gLSM §4, §5). Data blocks go in as they stand in their files, and new ones
//! come out, the same bytes that the host would make. Several jobs are under way at a time, each on a lane of its own,
//! so that one's copies go beside another one's kernels.

pub mod abi;
mod kernels;
mod lane;

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::cast_slice;
use parking_lot::Mutex;

use super::budget::Quota;
use super::device::Device;
use super::error::Result;
use super::memory::wait;
use abi::{FILTER_BLOCK, FilterRange, InputBlock, OutputBlock, Problems, Status, Use, View};
use kernels::Kernels;
use lane::{Lane, Made, Room, filter_bytes, uses_at};

/// How soon it is looked again whether lanes are used, at the earliest.
const LANES_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// See the [module](self).
pub struct Compactor {
    // Goes before the device whose memory it has.
    parts: ManuallyDrop<Parts>,
    device: Device,
}

struct Parts {
    kernels: Kernels,
    lanes: Mutex<Lanes>,
    quota: Arc<Quota>,
}

#[derive(Default)]
struct Lanes {
    /// Those that nobody uses.
    free: Vec<Lane>,
    /// All of them.
    count: usize,
    /// Bytes that each has pinned.
    pinned: usize,
    /// What jobs want of each on the device.
    wanted: Room,
    /// When a job has wanted one, or one was made.
    wanted_at: Option<Instant>,
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
    /// Opens the device with this ordinal and loads the kernels. The memory of lanes counts against the quota.
    ///
    /// # Errors
    /// [`Error`](super::error::Error) if there is no driver, no such device, or one that is too old.
    pub fn open(ordinal: u32, quota: &Arc<Quota>) -> Result<Self> {
        let device = Device::open(ordinal)?;
        let entered = device.enter()?;
        let kernels = Kernels::load(&device)?;
        drop(entered);
        Ok(Self {
            parts: ManuallyDrop::new(Parts {
                kernels,
                lanes: Mutex::default(),
                quota: Arc::clone(quota),
            }),
            device,
        })
    }

    /// What the device is called.
    pub fn device_name(&self) -> &str {
        self.device.name()
    }

    /// Makes one more lane, if there are fewer than `count`, with so many bytes of pinned memory; or more room in one
    /// that has too little for jobs that have been. This takes longer than a job. Says whether there was anything to do,
    /// and room in the budget for it.
    ///
    /// # Errors
    /// [`Error`](super::error::Error): there is a lane less, or no more than before.
    pub fn prepare(&self, pinned: usize, count: usize) -> Result<bool> {
        let _entered = self.device.enter()?;
        let (lane, room) = {
            let mut lanes = self.parts.lanes.lock();
            lanes.pinned = pinned;
            lanes.wanted = lanes.wanted.max(Room::for_input(pinned));
            let room = lanes.wanted;
            let small = lanes.free.iter().position(|lane| !lane.has(room));
            let has = small.map_or(0, |nth| lanes.free[nth].device_bytes());
            if room.device_bytes() > self.parts.quota.left().saturating_add(has) {
                return Ok(false);
            }
            let lane = small.map(|nth| lanes.free.swap_remove(nth));
            match lane {
                None if lanes.count >= count => return Ok(false),
                None => lanes.count += 1,
                Some(_) => {}
            }
            (lane, room)
        };
        let new = || Lane::new(&self.parts.quota);
        let made = lane.map_or_else(new, Ok).and_then(|mut lane| {
            lane.reserve(pinned, room)?;
            Ok(lane)
        });
        let mut lanes = self.parts.lanes.lock();
        match made {
            Ok(lane) => lanes.free.push(lane),
            Err(error) => {
                lanes.count -= 1;
                return Err(error);
            }
        }
        lanes.wanted_at = Some(Instant::now());
        Ok(true)
    }

    /// Gives the memory of all lanes back if no job has wanted one for so long. Says when to look again, if there are
    /// lanes left.
    ///
    /// # Errors
    /// [`Error`](super::error::Error).
    pub fn release_unused(&self, idle: Duration) -> Result<Option<Duration>> {
        let _entered = self.device.enter()?;
        let unused = {
            let mut lanes = self.parts.lanes.lock();
            let since = lanes.wanted_at.map_or(idle, |at| at.elapsed());
            if lanes.count == 0 {
                return Ok(None);
            }
            if lanes.free.len() < lanes.count || since < idle {
                return Ok(Some(idle.saturating_sub(since).max(LANES_POLL_INTERVAL)));
            }
            std::mem::take(&mut *lanes)
        };
        drop(unused);
        Ok(None)
    }

    /// Begins a job with so many bytes of data blocks, if there is a lane for it. If there is not, one is to be
    /// [prepared](Self::prepare) for others of its kind.
    pub fn begin(&self, plan: &Plan, bytes: usize) -> Option<Task<'_>> {
        let (room, pinned) = Room::of(plan, bytes)?;
        let mut lanes = self.parts.lanes.lock();
        lanes.wanted_at = Some(Instant::now());
        // No lane is to grow for a job that none will have.
        if pinned > lanes.pinned {
            return None;
        }
        // The one that was used last is in the caches.
        let Some(nth) = lanes.free.iter().rposition(|lane| lane.has(room)) else {
            lanes.wanted = lanes.wanted.with(room);
            return None;
        };
        Some(Task {
            compactor: self,
            lane: Some(lanes.free.remove(nth)),
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
    bytes: usize,
    view: View,
    made: Made,
}

impl Task<'_> {
    /// Whether it is the first one of its lane. Graphs are made and kernels loaded then, which takes longer.
    pub fn is_first(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.is_new)
    }

    /// Whether it was given up because its lane has too little device memory.
    pub fn lacks_room(&self) -> bool {
        let lane = self.lane.as_ref();
        lane.is_some_and(|lane| lane.wanted != Room::default())
    }

    /// Where the data blocks go before the job is [merged](Self::merge).
    pub fn input(&mut self) -> &mut [u8] {
        let bytes = self.bytes;
        let lane = self.lane.as_mut();
        lane.map_or(&mut [], |lane| lane.input_mut(bytes))
    }

    /// Makes the new blocks, without their checksums. `hides_nothing` says of the key of a tombstone whether it can go.
    /// Gives nothing if the device does not do such jobs, if something is wrong with a block, or if there is too little
    /// room.
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
        let answered = lane.host.bytes();
        let described = &answered[self.made.described..][..count * size_of::<OutputBlock>()];
        Ok(Some(NewBlocks {
            blocks: cast_slice(described),
            ends: &answered[self.made.ends..][..2 * stride * count],
            stride,
            entries: self.made.entries,
            bytes: self.made.bytes as u64,
        }))
    }

    /// Gives the blocks their checksums, with a seed for each one, and brings all to the host. `files` says of each block
    /// which of the new files it is of, and `filters` where each file's filter is to be. Gives nothing if an entry refers
    /// to another value file, or if there is too little room.
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
        let sealed = sealed?;
        waited?;
        let lane = self.lane.insert(lane);
        if !sealed {
            return Ok(None);
        }
        let made = &self.made;
        let answered = lane.host.bytes();
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
        let lane = self.lane.take();
        let mut lanes = self.compactor.parts.lanes.lock();
        let Some(mut lane) = lane else {
            lanes.count -= 1;
            return;
        };
        lanes.wanted = lanes.wanted.with(std::mem::take(&mut lane.wanted));
        lane.is_new = false;
        lanes.free.push(lane);
    }
}
