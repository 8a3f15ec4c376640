//! Whoever changes the table: alone, and on one stream.

use super::{DeviceTable, Writer};
use crate::Result;
use crate::engine::cuda::kernels::Grid;
use crate::engine::cuda::kernels::declarations::REPORT;
use crate::engine::cuda::stream::BatchStream;
use crate::pm::Mapping;
use crate::table::Table;

/// A table that only the holder changes, and the stream that the changes go to.
pub struct Exclusive<'a> {
    pub device_table: &'a DeviceTable,
    pub table: &'a Table<Mapping>,
    pub writer: &'a mut Writer,
    pub channel: &'a mut BatchStream,
}

impl DeviceTable {
    /// The table for the holder of the writer's lock.
    pub fn exclusive<'a>(
        &'a self,
        table: &'a Table<Mapping>,
        writer: &'a mut Writer,
        channel: &'a mut BatchStream,
    ) -> Exclusive<'a> {
        Exclusive {
            device_table: self,
            table,
            writer,
            channel,
        }
    }

    /// Changes the table alone, on a stream of the pool.
    ///
    /// # Errors
    /// Those of [`writer`](Self::writer) and of the change.
    pub fn exclusively<T>(
        &self,
        table: &Table<Mapping>,
        change: impl FnOnce(&mut Exclusive<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut writer = self.writer()?;
        let mut channel = self.channel()?;
        let changed = change(&mut self.exclusive(table, &mut writer, &mut channel))?;
        self.give(channel);
        Ok(changed)
    }
}

impl Exclusive<'_> {
    /// Sends the counters on their way back.
    pub fn fetch_counters(&mut self) -> Result<()> {
        let to = self.channel.outcome_of(0)?;
        let counters = self.channel.counters_address();
        // SAFETY: the blocks are as long, and nobody looks before the stream has come past.
        unsafe {
            let arguments = (counters, 0, 0, to);
            let kernels = &self.device_table.kernels;
            kernels.launch(&self.channel.stream, REPORT, Grid::Threads(0), arguments)
        }
    }
}
