//! The bytes of a column: a vector, or memory that somebody lends and wants back.

use std::fmt::Debug;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Memory that a column may use for its values until it is dropped.
pub trait Block: AsRef<[u8]> + AsMut<[u8]> + Debug + Send + Sync + 'static {}

impl<B: AsRef<[u8]> + AsMut<[u8]> + Debug + Send + Sync + 'static> Block for B {}

/// Bytes of a column. A clone owns what it has.
#[derive(Debug)]
pub struct Bytes(Memory);

#[derive(Debug)]
enum Memory {
    Own(Vec<u8>),
    /// The first `len` bytes of a block.
    Lent {
        block: Box<dyn Block>,
        len: usize,
    },
}

// What a panic leaves half written means as little as what no one has written yet.
impl UnwindSafe for Bytes {}
impl RefUnwindSafe for Bytes {}

impl Bytes {
    /// All bytes of a block.
    pub fn lent(block: impl Block) -> Self {
        let len = block.as_ref().len();
        let block = Box::new(block);
        Self(Memory::Lent { block, len })
    }

    /// Whether they are of a block.
    pub fn are_lent(&self) -> bool {
        matches!(self.0, Memory::Lent { .. })
    }

    /// The bytes, to write to.
    pub(super) fn as_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Own(bytes) => bytes,
            Memory::Lent { block, len } => &mut block.as_mut().as_mut()[..*len],
        }
    }

    /// How many there may be without a new buffer.
    pub(super) fn capacity(&self) -> usize {
        match &self.0 {
            Memory::Own(bytes) => bytes.capacity(),
            Memory::Lent { block, .. } => block.as_ref().as_ref().len(),
        }
    }

    /// Makes them `len`, no more than the capacity. Those that are new mean nothing.
    pub(super) fn resize(&mut self, new_len: usize) {
        match &mut self.0 {
            Memory::Own(bytes) => bytes.resize(new_len, 0),
            Memory::Lent { block, len } => {
                *len = new_len.min(block.as_ref().as_ref().len());
            }
        }
    }

    /// Gives back what they do not need.
    pub(super) fn shrink_to_fit(&mut self) {
        match &mut self.0 {
            Memory::Own(bytes) => bytes.shrink_to_fit(),
            Memory::Lent { .. } => {}
        }
    }

    /// A vector of them: the one that it was, or a copy.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Memory::Own(bytes) => bytes,
            Memory::Lent { .. } => self.to_vec(),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Own(bytes) => bytes,
            Memory::Lent { block, len } => &block.as_ref().as_ref()[..*len],
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Memory::Own(bytes))
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl Clone for Bytes {
    fn clone(&self) -> Self {
        self.to_vec().into()
    }
}
