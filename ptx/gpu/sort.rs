//! The versions that a batch of the store makes, sorted and found on the device (H-Rocks §5, §6).
//! Keys are sorted there, versions are found by binary search, values stay where they are.

#[cfg(test)]
mod tests;

use std::mem::ManuallyDrop;
use std::sync::Arc;

use bytemuck::{bytes_of, cast_slice, cast_slice_mut};
use parking_lot::{Mutex, MutexGuard};

use super::budget::Quota;
use super::device::Device;
use super::launch::{Blocks, Function, Graphs, Launch, Launches};
use super::memory::{DeviceMemory, PinnedMemory, copy_in, copy_out, wait};
use crate::gpu::error::{Error, Result};
use crate::gpu::module::Module;
use crate::gpu::radix::Radix;
use crate::gpu::stream::Stream;

/// Most requests of a batch: the kernels count in 32 bits, with room for a grid behind the last one.
const REQUESTS_MAX: usize = 1 << 31;

/// Sorts the changes of a batch and finds the versions that its requests see, on a GPU. One batch at a
/// time: whoever comes meanwhile waits.
pub struct VersionSorter {
    // Goes before the device whose memory it has.
    sorting: ManuallyDrop<Mutex<Sorting>>,
    device: Device,
    quota: Arc<Quota>,
}

/// What stays from one batch to the next.
struct Sorting {
    stream: Stream,
    graphs: Graphs,
    kernels: Kernels,
    hashes: DeviceMemory,
    /// Changes, before and after a pass.
    changes: [DeviceMemory; 2],
    counts: DeviceMemory,
    before: DeviceMemory,
    /// Hashes, then positions.
    asked: PinnedMemory,
    /// The order, then the versions.
    answered: PinnedMemory,
}

struct Kernels {
    gather_changes: Function,
    radix: Radix,
    find_versions: Function,
    blocks: Blocks,
    // The functions are its.
    _module: Module,
}

impl VersionSorter {
    /// Opens the device with this ordinal and loads the kernels. Its memory counts against the quota.
    ///
    /// # Errors
    /// [`Error`] if there is no driver, no such device, or one that is too old.
    pub fn open(ordinal: u32, quota: &Arc<Quota>) -> Result<Self> {
        let device = Device::open(ordinal)?;
        let entered = device.enter()?;
        let sorting = Sorting {
            stream: Stream::new()?,
            graphs: Graphs::default(),
            kernels: Kernels::load(&device)?,
            hashes: DeviceMemory::empty(quota),
            changes: [DeviceMemory::empty(quota), DeviceMemory::empty(quota)],
            counts: DeviceMemory::empty(quota),
            before: DeviceMemory::empty(quota),
            asked: PinnedMemory::empty(),
            answered: PinnedMemory::empty(),
        };
        drop(entered);
        Ok(Self {
            sorting: ManuallyDrop::new(Mutex::new(sorting)),
            device,
            quota: Arc::clone(quota),
        })
    }

    /// What the device is called.
    pub fn device_name(&self) -> &str {
        self.device.name()
    }

    /// Whether a batch of so many requests has room in the budget.
    pub fn has_room(&self, requests: usize) -> bool {
        let Ok(count) = u32::try_from(requests) else {
            return false;
        };
        let radix = Radix::bytes(count).next_power_of_two();
        let blocks = [
            8 * requests,
            4 * requests,
            Radix::counts_bytes(count.max(1)),
        ];
        let blocks = blocks.map(usize::next_power_of_two).iter().sum::<usize>() + 2 * radix;
        // What it has already is as good as free. Who has the lock makes it no smaller.
        let has = self
            .sorting
            .try_lock()
            .map_or(0, |sorting| sorting.device_bytes());
        blocks as u64 <= self.quota.left().saturating_add(has)
    }

    /// Begins a batch of so many requests.
    ///
    /// # Errors
    /// [`Error`] if there is no room for it in pinned memory, or if it has 2^31 requests or more.
    pub fn batch(&self, requests: usize) -> Result<VersionBatch<'_>> {
        if requests >= REQUESTS_MAX {
            return Err(Error {
                what: "sorting versions",
                found: format!("{requests} requests"),
                expected: format!("fewer than {REQUESTS_MAX} requests"),
            });
        }
        let _entered = self.device.enter()?;
        let mut sorting = self.sorting.lock();
        let words = |count| count * size_of::<u32>();
        // At least a word, so that there is a block.
        sorting.asked.reserve(words(3 * requests).max(8))?;
        sorting.answered.reserve(words(2 * requests).max(8))?;
        Ok(VersionBatch {
            sorting,
            device: &self.device,
            requests,
        })
    }
}

impl Drop for VersionSorter {
    fn drop(&mut self) {
        // Device memory is freed in the context of the calling thread.
        let _entered = self.device.enter();
        // SAFETY: nobody uses it after this.
        unsafe { ManuallyDrop::drop(&mut self.sorting) };
    }
}

static_assertions::assert_impl_all!(VersionSorter: Send, Sync);

/// A batch whose hashes and positions are being written, in memory that the device copies from.
pub struct VersionBatch<'s> {
    sorting: MutexGuard<'s, Sorting>,
    device: &'s Device,
    requests: usize,
}

impl<'s> VersionBatch<'s> {
    /// Where the caller puts the hash of the key of each request, in the order of their arrival, and
    /// from the start on the positions of those that change their keys, ascending. They hold what an
    /// earlier batch has left.
    pub fn operands(&mut self) -> (&mut [u64], &mut [u32]) {
        let (hashes, rest) = self
            .sorting
            .asked
            .bytes_mut()
            .split_at_mut(self.requests * 8);
        let positions = &mut rest[..self.requests * 4];
        (cast_slice_mut(hashes), cast_slice_mut(positions))
    }

    /// Sorts the changes, whose positions are so many, finds the versions, and waits until that is done.
    ///
    /// # Errors
    /// [`Error`], also when the device has no room for it.
    ///
    /// # Panics
    /// If there are more changes than requests.
    pub fn sort(mut self, changes: usize) -> Result<SortedVersions<'s>> {
        assert!(changes <= self.requests, "a change is a request");
        let _entered = self.device.enter()?;
        let sorting = &mut *self.sorting;
        let count = |count| u32::try_from(count).expect("requests have 32-bit positions");
        let launched = sorting.launch(count(self.requests), count(changes));
        // After an error too the device may still be at the buffers.
        let waited = wait(&sorting.stream);
        launched?;
        waited?;
        Ok(SortedVersions {
            sorting: self.sorting,
            requests: self.requests,
            changes,
        })
    }
}

/// The versions of a batch, in memory that is the sorter's: no other batch begins while it is held.
pub struct SortedVersions<'s> {
    sorting: MutexGuard<'s, Sorting>,
    requests: usize,
    changes: usize,
}

impl SortedVersions<'_> {
    /// The hashes of all requests, as they were given.
    pub fn hashes(&self) -> &[u64] {
        cast_slice(&self.sorting.asked.bytes()[..self.requests * 8])
    }

    /// Positions of the changes in the order of their hashes, those of one hash ascending.
    pub fn order(&self) -> &[u32] {
        cast_slice(&self.sorting.answered.bytes()[..self.changes * 4])
    }

    /// For each request the newest change before it whose hash is its own, as its index in
    /// [`order`](Self::order); `u32::MAX` if there is none.
    pub fn before(&self) -> &[u32] {
        let found = &self.sorting.answered.bytes()[self.changes * 4..];
        cast_slice(&found[..self.requests * 4])
    }
}

impl Sorting {
    /// Bytes of device memory.
    fn device_bytes(&self) -> u64 {
        let blocks = [&self.hashes, &self.counts, &self.before];
        let all = blocks.into_iter().chain(&self.changes);
        all.map(|block| block.len() as u64).sum()
    }

    /// Puts a batch on the stream: what is asked, the kernels, what is answered.
    fn launch(&mut self, requests: u32, changes: u32) -> Result<()> {
        let (count, len) = (requests as usize, changes as usize);
        let answered = &mut self.answered.bytes_mut()[..(count + len) * 4];
        let (order, before) = answered.split_at_mut(len * 4);
        if changes == 0 {
            before.fill(u8::MAX);
            return Ok(());
        }
        self.hashes.reserve(count * 8)?;
        self.before.reserve(count * 4)?;
        self.counts.reserve(Radix::counts_bytes(changes))?;
        for block in &mut self.changes {
            block.reserve(Radix::bytes(changes))?;
        }
        let (hashes, positions) = self.asked.bytes()[..count * 8 + len * 4].split_at(count * 8);
        let blocks = self.changes.each_ref().map(DeviceMemory::address);
        let (sorted, stream) = (blocks[0], &self.stream);
        let (hashes_there, found) = (self.hashes.address(), self.before.address());
        let counts = self.counts.address();
        let kernels = &self.kernels;
        let mut on = Launches::new(stream, &mut self.graphs);
        // SAFETY: the blocks are as long as the kernels take them to be, and stay as they are until
        // the caller has waited for the stream. Positions that are none are passed by.
        unsafe {
            copy_in(stream, hashes_there, hashes)?;
            copy_in(stream, sorted + 8 * u64::from(changes), positions)?;
            let (of_requests, len) = (bytes_of(&requests), bytes_of(&changes));
            let gathered = [bytes_of(&sorted), len, bytes_of(&hashes_there), of_requests];
            on.put(
                kernels.gather_changes,
                kernels.blocks.for_threads(changes),
                &gathered,
            )?;
            kernels.radix.sort(&mut on, blocks, changes, counts)?;
            let sought = [
                bytes_of(&sorted),
                len,
                bytes_of(&hashes_there),
                of_requests,
                bytes_of(&found),
            ];
            on.put(
                kernels.find_versions,
                kernels.blocks.for_threads(requests),
                &sought,
            )?;
            on.submit()?;
            copy_out(stream, order, sorted + 8 * u64::from(changes))?;
            copy_out(stream, before, found)
        }
    }
}

impl Kernels {
    /// Loads the kernels into the current context.
    fn load(device: &Device) -> Result<Self> {
        let module = Module::load(crate::VERSIONS)?;
        let find = |name| module.function(name);
        Ok(Self {
            gather_changes: find("gather_changes")?,
            radix: Radix::load(&module)?,
            find_versions: find("find_versions")?,
            blocks: Blocks::of(device),
            _module: module,
        })
    }
}
