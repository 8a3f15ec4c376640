//! The stores of the kernels into the file, noted one by one: for tests of crashes, whose kernels are
//! compiled for it (`ptx/include/write_trace.cuh`).

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

use crate::gpu::budget::Quota;
use crate::gpu::memory::Address;
use crate::gpu::memory::{DeviceMemory, copy_in, copy_out, wait};
use crate::gpu::stream::Stream;
use crate::pm::Mapping;
use crate::width::to_usize;
use crate::write_trace::{Note, WriteTrace};
use crate::{Error, Result};

/// Notes that a launch may leave.
const CAPACITY: usize = 1 << 17;

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
    /// A log of what is stored into `medium`.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn new(watch: &Arc<dyn WriteTrace>, medium: &Mapping) -> Result<Self> {
        // Of tests alone.
        let quota = Quota::unbounded();
        Ok(Self {
            watch: Arc::clone(watch),
            file: medium.base() as Address,
            reserved: medium.reserved(),
            notes: DeviceMemory::new(&quota, CAPACITY * size_of::<Note>())?,
            count: DeviceMemory::new(&quota, size_of::<u64>())?,
        })
    }

    /// Begins a launch; gives what the kernels are told.
    ///
    /// # Errors
    /// [`Error::Gpu`].
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
    /// [`Error::Gpu`], also when there was no room for all notes.
    pub fn end(&self, stream: &Stream, kernel: &'static str) -> Result<()> {
        let mut count = 0u64;
        // SAFETY: both are as long, and nobody looks before the wait.
        unsafe {
            let count = bytemuck::bytes_of_mut(&mut count);
            copy_out(stream, count, self.count.address())?;
        }
        wait(stream)?;
        if count > CAPACITY as u64 {
            return Err(Error::Gpu {
                what: "noting stores",
                found: format!("{count} of them in one launch"),
                expected: format!("{CAPACITY} at most"),
            });
        }
        let mut notes = vec![Note::zeroed(); to_usize(count)];
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
