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
    pub batch_stream: &'a mut BatchStream,
}

impl DeviceTable {
    /// The table for the holder of the writer's lock.
    pub fn exclusive<'a>(
        &'a self,
        table: &'a Table<Mapping>,
        writer: &'a mut Writer,
        batch_stream: &'a mut BatchStream,
    ) -> Exclusive<'a> {
        Exclusive {
            device_table: self,
            table,
            writer,
            batch_stream,
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
        let mut batch_stream = self.batch_stream()?;
        let changed = change(&mut self.exclusive(table, &mut writer, &mut batch_stream))?;
        self.give(batch_stream);
        Ok(changed)
    }
}

impl Exclusive<'_> {
    /// Sends the counters on their way back.
    pub fn fetch_counters(&mut self) -> Result<()> {
        let to = self.batch_stream.outcome_of(0)?;
        let counters = self.batch_stream.counters_address();
        // SAFETY: the blocks are as long, and nobody looks before the stream has come past.
        unsafe {
            let arguments = (counters, 0, 0, to);
            let kernels = &self.device_table.kernels;
            kernels.launch(
                &self.batch_stream.stream,
                REPORT,
                Grid::Threads(0),
                arguments,
            )
        }
    }
}
