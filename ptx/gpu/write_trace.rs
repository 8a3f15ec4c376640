//! The stores of the kernels into the file, noted one by one: for tests of crashes, whose kernels are
//! compiled for it (`ptx/include/write_trace.cuh`).

use std::fmt;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

use crate::gpu::budget::Quota;
use crate::gpu::error::{Error, Result};
use crate::gpu::memory::{Address, DeviceMemory, copy_in, copy_out, wait};
use crate::gpu::stream::Stream;

/// Notes that a launch may leave.
const CAPACITY: usize = 1 << 17;

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

/// As the kernels see it.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct LogView {
    file: Address,
    reserved: u64,
    notes: Address,
    capacity: u64,
    budget: u64,
    count: Address,
}

/// Where the kernels of one index leave their notes.
pub struct TraceBuffer {
    watch: Arc<dyn WriteTrace>,
    file: Address,
    reserved: u64,
    notes: DeviceMemory,
    count: DeviceMemory,
}

impl TraceBuffer {
    /// A log of what is stored into the file at this address, for which so many bytes are reserved.
    ///
    /// # Errors
    /// [`Error`].
    pub fn new(watch: &Arc<dyn WriteTrace>, file: Address, reserved: u64) -> Result<Self> {
        // Of tests alone.
        let quota = Quota::unbounded();
        Ok(Self {
            watch: Arc::clone(watch),
            file,
            reserved,
            notes: DeviceMemory::new(&quota, CAPACITY * size_of::<Note>())?,
            count: DeviceMemory::new(&quota, size_of::<u64>())?,
        })
    }

    /// Begins a launch; gives what the kernels are told.
    ///
    /// # Errors
    /// [`Error`].
    pub fn begin(&self, stream: &Stream, kernel: &'static str) -> Result<LogView> {
        wait(stream)?;
        let budget = self.watch.begin(kernel);
        // SAFETY: the block is as long, and the word stays until the wait.
        unsafe { copy_in(stream, self.count.address(), &[0; size_of::<u64>()])? };
        wait(stream)?;
        Ok(LogView {
            file: self.file,
            reserved: self.reserved,
            notes: self.notes.address(),
            capacity: CAPACITY as u64,
            budget,
            count: self.count.address(),
        })
    }

    /// Ends a launch.
    ///
    /// # Errors
    /// [`Error`], also when there was no room for all notes.
    pub fn end(&self, stream: &Stream, kernel: &'static str) -> Result<()> {
        let mut count = 0u64;
        // SAFETY: both are as long, and nobody looks before the wait.
        unsafe {
            let count = bytemuck::bytes_of_mut(&mut count);
            copy_out(stream, count, self.count.address())?;
        }
        wait(stream)?;
        if count > CAPACITY as u64 {
            return Err(Error {
                what: "noting stores",
                found: format!("{count} of them in one launch"),
                expected: format!("{CAPACITY} at most"),
            });
        }
        let count = usize::try_from(count).expect("there was room for all");
        let mut notes = vec![Note::zeroed(); count];
        // SAFETY: as above.
        unsafe {
            let notes = bytemuck::cast_slice_mut(&mut notes);
            copy_out(stream, notes, self.notes.address())?;
        }
        wait(stream)?;
        self.watch.end(kernel, &notes);
        Ok(())
    }
}
