//! The way of a batch's operands to the device, through pinned memory.

use rayon::ThreadPool;

use super::event_on;
use crate::Result;
use crate::gpu::event::Event;
use crate::gpu::memory::Address;
use crate::gpu::memory::{PinnedMemory, copy_in, is_pinned};
use crate::gpu::stream::Stream;
use crate::pool::parallel;

/// Bytes that are copied at a time, while the bus carries those before them.
const PIECE_BYTES: usize = 4 << 20;

/// Pieces of so many bytes that are on their way at a time. Pinning memory takes far longer than
/// copying through it, so there is not more of it.
const PIECES: usize = 4;

/// Most bytes of keys and values of a batch that the caller's thread serves alone.
pub const CALLER_ALONE_BYTES_MAX: usize = 1 << 20;

/// Pinned memory that operands pass through piece by piece.
pub struct Staging([PinnedMemory; PIECES]);

impl Staging {
    /// No memory yet.
    pub const fn empty() -> Self {
        Self([const { PinnedMemory::empty() }; PIECES])
    }

    /// Sends each of `operands` to its address on the device, in the order of `stream`. Those that
    /// the caller has pinned are not copied on their way.
    ///
    /// # Safety
    /// The stream must have come past whatever was sent before. Until it has come past these, too, each
    /// address must be one of this device with room for its bytes, and the bytes must stay as they are.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub unsafe fn send(
        &mut self,
        copiers: Option<&ThreadPool>,
        stream: &Stream,
        operands: [(Address, &[u8]); 2],
    ) -> Result<()> {
        let mut pieces = Vec::new();
        for (to, bytes) in operands {
            if is_pinned(bytes) {
                // SAFETY: the caller vouches for the room, and keeps the bytes until the stream has come past.
                unsafe { copy_in(stream, to, bytes)? };
            } else {
                let addresses = (to..).step_by(PIECE_BYTES);
                pieces.extend(addresses.zip(bytes.chunks(PIECE_BYTES)));
            }
        }
        let mut sent = [const { None::<Event> }; PIECES];
        for (nth, &(to, piece)) in pieces.iter().enumerate() {
            let (memory, sent) = (&mut self.0[nth % PIECES], &mut sent[nth % PIECES]);
            if let Some(sent) = sent.take() {
                sent.wait()?;
            }
            memory.reserve(piece.len())?;
            let staged = &mut memory.bytes_mut()[..piece.len()];
            copy(copiers, staged, piece);
            // SAFETY: the caller vouches for the room, of which each piece has its own part. The pinned
            // memory is not written to again before the event, or before the next call, when the stream
            // has come past.
            unsafe { copy_in(stream, to, staged)? };
            if nth + PIECES < pieces.len() {
                *sent = Some(event_on(stream)?);
            }
        }
        Ok(())
    }
}

/// Copies, with several threads if there are any and it is long enough for them to pay.
fn copy(copiers: Option<&ThreadPool>, to: &mut [u8], from: &[u8]) {
    const COPY_PART_BYTES: usize = 1 << 17;
    // Who copies for himself alone may be of another pool, and must not wait for this one.
    match copiers.filter(|_| to.len() > CALLER_ALONE_BYTES_MAX) {
        None => to.copy_from_slice(from),
        Some(copiers) => copiers.install(|| {
            let parts = to
                .chunks_mut(COPY_PART_BYTES)
                .zip(from.chunks(COPY_PART_BYTES));
            parallel::map(parts, |(to, from)| to.copy_from_slice(from));
        }),
    }
}
