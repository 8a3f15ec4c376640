//! What a test hears of the stores that kernels make into the file of an index.

use std::fmt;

use bytemuck::{Pod, Zeroable};

/// A store of a thread into the file, or a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Note {
    /// Offset in the file.
    pub at: u64,
    /// What is stored there.
    pub word: u64,
    /// The thread, numbered through the launch.
    pub thread: u32,
    /// How many bytes of `word` are stored, or one of the other kinds.
    pub kind: u32,
}

impl Note {
    /// What the thread has stored before is durable.
    pub const FENCE: u32 = 0;
    /// The bits of `word` are set in the eight bytes at `at`.
    pub const OR: u32 = 16;
    /// Nothing was done.
    pub const NOTHING: u32 = 32;
}

/// Watches what kernels store into the file of an index.
pub trait WriteTrace: Send + Sync + fmt::Debug {
    /// PTX of the kernels, compiled with `GPHASH_WRITE_TRACE`.
    fn kernels(&self) -> &str;

    /// Most blocks of a launch. With few of them a warp takes as much of a small batch as it would of a
    /// large one.
    fn blocks(&self) -> u32;

    /// Most positions of a batch that the caller's thread serves alone.
    fn short(&self) -> usize;

    /// A launch is about to begin, and the device is at rest. Gives how many notes the launch may
    /// make before its further stores are only noted and not done.
    fn begin(&self, kernel: &'static str) -> u64;

    /// It has ended.
    fn end(&self, kernel: &'static str, notes: &[Note]);
}
