//! What the kernels are told of the table as it grows: how much of the file they reach, and its levels.

use super::exclusive::Exclusive;
use super::mirror::level_len;
use crate::Result;
use crate::gpu::memory::{DeviceMemory, fill, wait};
use crate::layout::PAGE;
use crate::pm::Medium;
use crate::width::to_usize;

impl Exclusive<'_> {
    /// Brings what the kernels are told of the table up to what it is: how much of the file they reach,
    /// and which levels there are. Whoever changes the table begins with this. What fails leaves them with
    /// what they knew, and the next call goes on from there.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn follow(&mut self) -> Result<()> {
        self.extend()?;
        loop {
            let known = self.device_table.view.read().top_level;
            if known >= self.table.levels.live().top {
                return Ok(());
            }
            self.enter_level(known + 1)?;
        }
    }

    /// Makes the GPU reach all of the file.
    fn extend(&mut self) -> Result<()> {
        let (device_table, table) = (self.device_table, self.table);
        let len = table.medium.len();
        if len == device_table.view.read().file_len {
            return Ok(());
        }
        // SAFETY: the mapping keeps what it has mapped where it is, and outlives the engine.
        unsafe { device_table.registration.extend(&table.medium, len)? };
        let mut dirty = None;
        if table.medium.tracks_dirty() {
            self.save_dirty()?;
            let stream = &self.batch_stream.stream;
            let map_len = to_usize(len.div_ceil(PAGE).div_ceil(64)) * 8;
            let quota = &device_table.budget.dirty;
            if quota.left() < map_len as u64 {
                // It has been saved, and there is no room for both.
                device_table.view_alone().dirty = 0;
                self.writer.dirty = DeviceMemory::empty(quota);
            }
            let map = match quota.left() < map_len as u64 {
                // All pages count as changed from here on.
                true => DeviceMemory::empty(quota),
                false => DeviceMemory::new(quota, map_len)?,
            };
            // SAFETY: the block is as long.
            unsafe { fill(stream, map.address(), 0, map.len())? };
            wait(stream)?;
            dirty = Some(map);
        }
        let mut view = device_table.view_alone();
        view.file_len = len;
        if let Some(dirty) = dirty {
            view.dirty = dirty.address();
            self.writer.dirty = dirty;
        }
        Ok(())
    }

    /// Shows the kernels the level that comes on top of those that they know. The GPU reaches it.
    fn enter_level(&mut self, top: u32) -> Result<()> {
        let (device_table, table) = (self.device_table, self.table);
        let offset = table.levels.offset(top);
        // The copy of a level saves more than cached values do.
        let mirror = &self.writer.mirror;
        if mirror.awaits(top) && !mirror.has_room(level_len(table, top))? {
            drop(self.give_up_entries()?);
        }
        let stream = &self.batch_stream.stream;
        let probe = self.writer.mirror.add_level(table, stream, top, offset)?;
        let now = device_table.view_now().cache;
        let (cache, outgrown) = self.writer.cache.reach(stream, top, now)?;
        // From here on items may move up to where a lookup with the old view does not look.
        let mut view = device_table.view_alone();
        view.level_offset[top as usize] = offset;
        view.level_probe[top as usize] = probe;
        view.top_level = top;
        view.cache = cache;
        drop(view);
        drop(outgrown);
        Ok(())
    }
}
