//! The pages that the GPU has stored to since the last checkpoint.

use super::{DeviceTable, Writer};
use crate::Result;
use crate::gpu::memory::{copy_out, fill, wait};
use crate::gpu::stream::Stream;
use crate::pm::Mapping;
use crate::table::Table;

impl DeviceTable {
    /// Hands the pages that the GPU has stored to over to the next checkpoint.
    pub fn save_dirty(
        &self,
        table: &Table<Mapping>,
        writer: &Writer,
        stream: &Stream,
    ) -> Result<()> {
        let len = writer.dirty.len();
        if len == 0 {
            return Ok(());
        }
        let mut words = vec![0u64; len / 8];
        // SAFETY: the block is as long, and nobody looks before the wait.
        unsafe {
            copy_out(
                stream,
                bytemuck::cast_slice_mut(&mut words),
                writer.dirty.address(),
            )?;
        }
        wait(stream)?;
        table.medium.merge_dirty(0, &words);
        // Not before they are noted: pages that nobody knows of would not be saved.
        // SAFETY: as above; the writer's lock keeps changes away.
        unsafe { fill(stream, writer.dirty.address(), 0, len)? };
        wait(stream)
    }
}
