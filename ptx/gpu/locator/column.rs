//! The column that exchanges give values for, one after the other.

use super::exchange::Fetched;
use crate::gpu::pinned_pool::PinnedBlock;

/// What the exchanges of a column have given.
#[derive(Default)]
pub struct Column {
    /// Where its values are put, one behind the other, while all of them are known.
    pub target: Option<Target>,
    /// Keys whose values were fetched, and bytes of these.
    pub keys: usize,
    pub bytes: usize,
    /// Some were not known.
    pub has_gaps: bool,
}

/// A block to which the device copies values.
pub struct Target {
    pub block: PinnedBlock,
    /// Bytes that are there or on their way.
    filled: usize,
    /// Some have gone elsewhere, and none may come behind those.
    is_closed: bool,
}

impl Column {
    /// One whose values are put into this block.
    pub fn new(block: Option<PinnedBlock>) -> Self {
        let target = |block| Target {
            block,
            filled: 0,
            is_closed: false,
        };
        Self {
            target: block.map(target),
            ..Self::default()
        }
    }

    /// Notes what was fetched, and whether it was put here.
    pub fn note(&mut self, fetched: &Fetched, is_placed: bool) {
        self.keys += fetched.keys;
        self.bytes = self.bytes.saturating_add(fetched.bytes);
        self.has_gaps |= !fetched.is_whole;
        if let Some(target) = &mut self.target {
            target.is_closed |= !is_placed;
        }
    }
}

impl Target {
    /// Bytes that it has room for.
    pub fn room(&self) -> usize {
        match self.is_closed {
            true => 0,
            false => self.block.as_ref().len() - self.filled,
        }
    }

    /// The next `len` bytes, which the device may write to from here on.
    pub fn take(&mut self, len: usize) -> &mut [u8] {
        let first = self.filled;
        self.filled += len;
        &mut self.block.as_mut()[first..][..len]
    }
}
