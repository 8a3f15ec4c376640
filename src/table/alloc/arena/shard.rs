//! What the batches that run hold of an arena, each for itself.

/// What one running batch has taken and given back.
#[derive(Default)]
pub struct Shard {
    /// Those of each class.
    pub(crate) caches: Box<[Cache]>,
    /// Records that readers may still hold.
    pub(crate) retired: Vec<u64>,
    /// Their bytes.
    pub(crate) retired_bytes: u64,
    /// Fresh records were taken.
    pub(crate) taken_run: bool,
}

/// Records of one class that a shard may take.
#[derive(Clone, Default)]
pub(crate) struct Cache {
    /// That were given back.
    pub(crate) free: Vec<u64>,
    /// That are fresh.
    pub(crate) run: std::ops::Range<u64>,
}

impl Shard {
    /// Gives back a record of `class` that was never visible to anyone.
    pub fn put_back(&mut self, class: u32, record: u64) {
        self.caches[class as usize].free.push(record);
    }

    /// The record of `class`, of `stride` bytes, that will be taken after `distance` others, as far as
    /// the shard has so many.
    #[inline]
    pub fn upcoming(&self, class: u32, distance: usize, stride: u64) -> Option<u64> {
        let cache = &self.caches[class as usize];
        if cache.run.is_empty() {
            let last = cache.free.len().checked_sub(distance + 1)?;
            return Some(cache.free[last]);
        }
        let record = cache.run.start + distance as u64 * stride;
        (record < cache.run.end).then_some(record)
    }

    /// Whether fresh records were taken since this was last asked.
    pub fn has_taken_run(&mut self) -> bool {
        std::mem::take(&mut self.taken_run)
    }

    /// Gives up a record of `len` bytes that readers may still hold.
    #[inline]
    pub fn retire(&mut self, record: u64, len: u64) {
        self.retired.push(record);
        self.retired_bytes += len;
    }

    /// Takes what was given up.
    pub fn take_retired(&mut self) -> Vec<u64> {
        self.retired_bytes = 0;
        std::mem::take(&mut self.retired)
    }
}
