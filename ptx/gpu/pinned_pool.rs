//! Blocks of pinned memory for columns of values, which their owners keep for as long as they like, on any thread. To pin a
//! block takes many times as long as to fill it, so those that come back are kept for the next columns.

use std::fmt;
use std::mem;
use std::process;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::device::Device;
use super::memory::PinnedMemory;

/// Bytes of all blocks at most, whoever has them.
pub const PINNED_BYTES_MAX: usize = 512 << 20;

/// Blocks that are kept for later at most.
const IDLE_MAX: usize = 2;

/// Columns that find no block before one is pinned: it does not pay for those that nobody asks for again.
const MISSES_MIN: u32 = 2;

/// This part of the room for values as long as those of the last column is added.
const SPARE_FRACTION: usize = 16;

/// Blocks are multiples of this, of a huge page.
const GRANULE: usize = 2 << 20;

/// See the [module](self).
pub struct PinnedPool {
    device: Arc<Device>,
    blocks: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    idle: Vec<PinnedMemory>,
    /// Bytes of all blocks.
    pinned: usize,
    /// How many values the last whole column had, and bytes of these.
    last: Option<(usize, usize)>,
    /// Columns that found no block since one was pinned.
    misses: u32,
}

impl PinnedPool {
    /// None are pinned yet.
    pub fn new(device: &Arc<Device>) -> Arc<Self> {
        Arc::new(Self {
            device: device.clone(),
            blocks: Mutex::default(),
        })
    }

    /// Notes that a column had `values` of so many bytes: those of the next ones may be as long.
    pub fn note(&self, values: usize, bytes: usize) {
        self.blocks.lock().last = Some((values, bytes));
    }

    /// A block for so many values, if there is one.
    pub fn take(self: &Arc<Self>, values: usize) -> Option<PinnedBlock> {
        let mut blocks = self.blocks.lock();
        let len = blocks.len_for(values)?;
        let fits = (0..blocks.idle.len()).filter(|&nth| blocks.idle[nth].bytes().len() >= len);
        let Some(nth) = fits.min_by_key(|&nth| blocks.idle[nth].bytes().len()) else {
            blocks.misses += 1;
            return None;
        };
        let memory = blocks.idle.swap_remove(nth);
        Some(self.block(memory))
    }

    /// A new block for so many values, if columns have found none again and again. It takes long.
    pub fn pin(self: &Arc<Self>, values: usize) -> Option<PinnedBlock> {
        let (len, too_short) = {
            let mut blocks = self.blocks.lock();
            let len = blocks.len_for(values)?;
            if blocks.misses < MISSES_MIN {
                return None;
            }
            blocks.misses = 0;
            let idle: usize = blocks.idle.iter().map(|one| one.bytes().len()).sum();
            if blocks.pinned - idle + len > PINNED_BYTES_MAX {
                return None;
            }
            let mut too_short = Vec::new();
            while blocks.pinned + len > PINNED_BYTES_MAX {
                let memory = blocks.idle.pop().expect("those that are lent leave room");
                blocks.pinned -= memory.bytes().len();
                too_short.push(memory);
            }
            blocks.pinned += len;
            (len, too_short)
        };
        for memory in too_short {
            free(&self.device, memory);
        }
        let entered = self.device.enter();
        match entered.and_then(|_entered| PinnedMemory::new(len)) {
            Ok(memory) => Some(self.block(memory)),
            Err(_) => {
                self.blocks.lock().pinned -= len;
                None
            }
        }
    }

    fn block(self: &Arc<Self>, memory: PinnedMemory) -> PinnedBlock {
        PinnedBlock {
            memory,
            device: self.device.clone(),
            pool: Arc::downgrade(self),
            process: process::id(),
        }
    }

    /// Keeps a block for later, or the longer ones if there are enough.
    fn put_back(&self, memory: PinnedMemory) {
        let shortest = {
            let mut blocks = self.blocks.lock();
            blocks.idle.push(memory);
            if blocks.idle.len() <= IDLE_MAX {
                return;
            }
            let len_of = |nth: &usize| blocks.idle[*nth].bytes().len();
            let nth = (0..blocks.idle.len()).min_by_key(len_of);
            let shortest = blocks.idle.swap_remove(nth.expect("one was put there"));
            blocks.pinned -= shortest.bytes().len();
            shortest
        };
        free(&self.device, shortest);
    }
}

impl Blocks {
    /// Bytes of a block for so many values, if one may be as long.
    fn len_for(&self, values: usize) -> Option<usize> {
        let (last, bytes) = self.last?;
        let len = bytes.div_ceil(last.max(1)).saturating_mul(values);
        let len = len.saturating_add(len / SPARE_FRACTION);
        (len <= PINNED_BYTES_MAX).then(|| len.next_multiple_of(GRANULE))
    }
}

impl Drop for PinnedPool {
    fn drop(&mut self) {
        for memory in mem::take(&mut self.blocks.get_mut().idle) {
            free(&self.device, memory);
        }
    }
}

/// Frees a block in the context that it is of.
fn free(device: &Device, memory: PinnedMemory) {
    let _entered = device.enter();
    drop(memory);
}

/// A block of a pool, which gets it back when this is dropped.
pub struct PinnedBlock {
    memory: PinnedMemory,
    // The block is of its context.
    device: Arc<Device>,
    pool: Weak<PinnedPool>,
    process: u32,
}

impl AsRef<[u8]> for PinnedBlock {
    fn as_ref(&self) -> &[u8] {
        self.memory.bytes()
    }
}

impl AsMut<[u8]> for PinnedBlock {
    fn as_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }
}

impl fmt::Debug for PinnedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.memory.bytes().len();
        f.debug_struct("PinnedBlock").field("len", &len).finish()
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        let memory = mem::replace(&mut self.memory, PinnedMemory::empty());
        if self.process != process::id() {
            // The driver is not for a forked child, and what it has is its parent's.
            mem::forget((memory, self.device.clone()));
            return;
        }
        match self.pool.upgrade() {
            Some(pool) => pool.put_back(memory),
            None => free(&self.device, memory),
        }
    }
}

static_assertions::assert_impl_all!(PinnedBlock: Send, Sync);
