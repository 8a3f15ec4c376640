//! The pages that the GPU has stored to since the last checkpoint.

use super::DeviceTable;
use super::exclusive::Exclusive;
use crate::Result;
use crate::gpu::memory::{copy_out, fill, wait};
use crate::pm::Mapping;
use crate::table::Table;

impl DeviceTable {
    /// Publishes a version, in one checkpoint where the domain has them.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), and those of [`Table::publish`]. [`Error::Damaged`](crate::Error::Damaged) if
    /// lookups have met damage; the version is published none the less.
    pub fn sync(&self, table: &Table<Mapping>) -> Result<()> {
        table.publish_after(|| {
            // The writer's lock keeps the GPU's stores away until the checkpoint has what it takes.
            let mut writer = self.writer()?;
            let mut batch_stream = self.batch_stream()?;
            self.exclusive(table, &mut writer, &mut batch_stream)
                .save_dirty()?;
            self.give(batch_stream);
            Ok(writer)
        })?;
        self.count_lookups(table)?;
        self.tell_damage(table)
    }
}

impl Exclusive<'_> {
    /// Hands the pages that the GPU has stored to over to the next checkpoint.
    pub fn save_dirty(&mut self) -> Result<()> {
        let (dirty, stream) = (&self.writer.dirty, &self.batch_stream.stream);
        if dirty.is_empty() {
            // Which pages the kernels that know of the file have changed, nobody has noted.
            let known = self.device_table.view_now().file_len;
            if self.table.medium.tracks_dirty() && known > 0 {
                self.table.medium.mark_dirty(0, known);
            }
            return Ok(());
        }
        let len = dirty.len();
        let mut words = vec![0u64; len / 8];
        // SAFETY: the block is as long, and nobody looks before the wait.
        unsafe {
            let words = bytemuck::cast_slice_mut(&mut words);
            copy_out(stream, words, dirty.address())?;
        }
        wait(stream)?;
        self.table.medium.merge_dirty(0, &words);
        // Not before they are noted: pages that nobody knows of would not be saved.
        // SAFETY: as above; the writer's lock keeps changes away.
        unsafe { fill(stream, dirty.address(), 0, len)? };
        Ok(wait(stream)?)
    }
}
