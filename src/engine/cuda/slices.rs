//! The verbs on slices in device memory.

use cust::stream::Stream;

use super::channel::Operands;
use super::kernels::Read;
use super::view::Address;
use super::{CudaEngine, sizes};
use crate::Result;
use crate::engine::Write;
use crate::index::table::Table;
use crate::pm::Mapping;

/// A batch in the caller's device memory; see [`Operands`] for the fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceOperands {
    pub(crate) keys: Address,
    pub(crate) values: Address,
    pub(crate) answers: Address,
    pub(crate) len: usize,
}

impl DeviceOperands {
    /// The batch in parts that the engine's own buffers are made for.
    fn parts(self, table: &Table<Mapping>) -> impl Iterator<Item = Operands> {
        const LONGEST: usize = 1 << 24;
        let (key_size, value_size) = sizes(table);
        (0..self.len).step_by(LONGEST).map(move |first| Operands {
            keys: self.keys + (first * key_size) as u64,
            values: self.values + (first * value_size) as u64,
            answers: self.answers + first as u64 / 8,
            len: LONGEST.min(self.len - first) as u32,
            on_host: false,
            stored: false,
        })
    }
}

impl CudaEngine {
    /// Executes a batch that changes the table and whose keys, values and answers are in device
    /// memory, after what is on `stream`; it is done when the call returns.
    ///
    /// # Safety
    /// The operands must be addresses of this device, valid for the whole batch.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) unsafe fn write_device(
        &self,
        table: &Table<Mapping>,
        stream: &Stream,
        verb: Write,
        operands: DeviceOperands,
    ) -> Result<()> {
        let attached = self.attached()?;
        let mut writer = attached.writer();
        let mut channel = attached.channel()?;
        channel.follow(stream)?;
        for part in operands.parts(table) {
            attached.drain_slice(table, &mut writer, &mut channel, part.len.into())?;
            let batch = attached.begin_write(table, &mut writer, &mut channel, verb, part)?;
            attached.end_write(table, &mut writer, &mut channel, verb, batch)?;
        }
        attached.give(channel);
        Ok(())
    }

    /// Looks up a batch whose keys, values and answers are in device memory. It is put on
    /// `stream`, and done when the stream has come past it.
    ///
    /// # Safety
    /// The operands must be addresses of this device, and stay until the batch is done.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub(crate) unsafe fn read_device(
        &self,
        table: &Table<Mapping>,
        stream: &Stream,
        verb: Read,
        operands: DeviceOperands,
    ) -> Result<()> {
        let attached = self.attached()?;
        let view = attached.hold_view();
        let reader = attached.readers.on(stream)?;
        let mut reader = reader.lock();
        let launched = operands.parts(table).try_for_each(|part| {
            let order = reader.order(stream, part.len, view.file_len)?;
            let counters = attached.looked_up.address();
            let mut launches = reader.launches(stream);
            // SAFETY: the operands are as the caller says. The order's memory and the view stay
            // for as long as this reader is waited for.
            unsafe {
                attached.launch_read(&mut launches, *view, verb, part, order, counters)?;
                launches.submit()
            }
        });
        // Also after an error: some parts may be under way.
        reader.issued(stream).and(launched)
    }
}
