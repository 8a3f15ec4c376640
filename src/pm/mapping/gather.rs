//! Copying values from many offsets of the file, and to many.

use super::Mapping;
use crate::pm::Medium;
use crate::pool::write_back;

/// How many values lie between the one that is copied and the one that is asked for.
const PREFETCH_DISTANCE_VALUES: usize = 32;

/// Most lines of a value that are asked for; the processor sees the pattern of longer ones.
const MOST_LINES: usize = 8;

impl Mapping {
    /// Copies the value at each of `offsets` to its position among `values`, which has as many of the same
    /// length; those at offset 0 are left as they are. No write to the other offsets may run beside it.
    pub(crate) fn gather(&self, offsets: &[u64], values: &mut [u8]) {
        if offsets.is_empty() {
            return;
        }
        let size = values.len() / offsets.len();
        for (nth, value) in values.chunks_exact_mut(size).enumerate() {
            if let Some(&next) = offsets
                .get(nth + PREFETCH_DISTANCE_VALUES)
                .filter(|&&offset| offset != 0)
            {
                let lines = (next..next + size as u64).step_by(write_back::LINE);
                lines.take(MOST_LINES).for_each(|at| self.prefetch(at));
            }
            if offsets[nth] != 0 {
                self.read(offsets[nth], value);
            }
        }
    }

    /// Writes each of `values`, which are of the same length, to its offset. They are as durable when it
    /// returns as what is stored afterwards. No access to those offsets may run beside it.
    pub(crate) fn scatter(&self, offsets: &[u64], values: &[u8]) {
        if offsets.is_empty() {
            return;
        }
        let size = values.len() / offsets.len();
        for (&offset, value) in offsets.iter().zip(values.chunks_exact(size)) {
            self.write_streaming(offset, value);
        }
        // Also where nothing is written back, what went past the caches must come first.
        #[cfg(target_arch = "x86_64")]
        write_back::fence();
    }

    /// Writes what is not read again soon.
    #[inline]
    fn write_streaming(&self, at: u64, bytes: &[u8]) {
        #[cfg(target_arch = "x86_64")]
        if (at | bytes.len() as u64).is_multiple_of(write_back::LINE as u64) {
            let to = self.bytes(at, bytes.len() as u64);
            // SAFETY: as in `write`; whole lines, since offset 0 is aligned to more.
            unsafe { write_back::stream(to, bytes) };
            self.mark_dirty(at, bytes.len() as u64);
            return;
        }
        self.write(at, bytes);
        self.write_back(at, bytes.len() as u64);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
