//! A radix sort of 64-bit words, each with a 32-bit position, in device memory.

use bytemuck::bytes_of;

use super::error::Result;
use super::launch::{Function, Launch, THREADS};
use super::memory::Address;
use super::module::Module;

/// Values of a digit: a thread for each.
const DIGITS: u32 = THREADS;

/// Passes over the digits. An even number, so that the last one leaves its result where the first
/// one began.
const PASSES: u32 = u64::BITS / DIGITS.ilog2();

/// Most chunks, each for a warp: enough to keep a device busy, and few enough that
/// their digits are counted in less memory than the words take.
const CHUNKS_MAX: u32 = 2048;

/// Words of a chunk are a multiple of these: what a warp loads at a time.
const CHUNK_STEP: u32 = 128;

/// Warps of a block.
const BLOCK_WARPS: u32 = THREADS / 32;

/// The kernels of `radix.cuh`, of a module that includes it.
#[derive(Clone, Copy)]
pub struct Radix {
    count_digits: Function,
    start_digits: Function,
    scatter_digits: Function,
}

impl Radix {
    /// Finds the kernels in a module.
    ///
    /// # Errors
    /// [`Error`](super::error::Error).
    pub fn load(module: &Module) -> Result<Self> {
        Ok(Self {
            count_digits: module.function("count_digits")?,
            start_digits: module.function("start_digits")?,
            scatter_digits: module.function("scatter_digits")?,
        })
    }

    /// Bytes of a block of so many words and positions: the words, and behind them the positions.
    pub fn bytes(len: u32) -> usize {
        len as usize * (size_of::<u64>() + size_of::<u32>())
    }

    fn chunk_size(len: u32) -> u32 {
        len.div_ceil(CHUNKS_MAX).next_multiple_of(CHUNK_STEP)
    }

    /// Bytes that counts take.
    pub fn counts_bytes(len: u32) -> usize {
        let chunks = len.div_ceil(Self::chunk_size(len));
        (DIGITS * (chunks + 1)) as usize * size_of::<u32>()
    }

    /// Puts a sort of the first block by its words on the way; equal words keep their order. The second block is used
    /// meanwhile.
    ///
    /// # Safety
    /// The blocks must have the [bytes](Self::bytes) of `len` words, and the counts [theirs](Self::counts_bytes), until
    /// the stream has come past; `len` must not be 0.
    ///
    /// # Errors
    /// [`Error`](super::error::Error).
    pub unsafe fn sort(
        &self,
        on: &mut impl Launch,
        [mut from, mut to]: [Address; 2],
        len: u32,
        counts: Address,
    ) -> Result<()> {
        let chunk_size = Self::chunk_size(len);
        let chunks = len.div_ceil(chunk_size);
        let (len, size, digits) = (bytes_of(&len), bytes_of(&chunk_size), bytes_of(&counts));
        let blocks = chunks.div_ceil(BLOCK_WARPS);
        for pass in 0..PASSES {
            let shift = pass * DIGITS.ilog2();
            let shift = bytes_of(&shift);
            let block = bytes_of(&from);
            // SAFETY: the caller vouches for the blocks and the counts, and these are what the kernels take.
            unsafe {
                let counted = [block, len, size, shift, digits];
                on.put(self.count_digits, blocks, &counted)?;
                on.put(self.start_digits, DIGITS, &[digits, bytes_of(&chunks)])?;
                let scattered = [block, bytes_of(&to), len, size, shift, digits];
                on.put(self.scatter_digits, blocks, &scattered)?;
            }
            std::mem::swap(&mut from, &mut to);
        }
        Ok(())
    }
}
