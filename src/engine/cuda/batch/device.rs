//! The verbs on slices in device memory.

use super::sizes;
use crate::engine::Write;
use crate::engine::cuda::CudaEngine;
use crate::engine::cuda::kernels::Read;
use crate::engine::cuda::service::Server;
use crate::engine::cuda::stream::Operands;
use crate::engine::cuda::table::DeviceTable;
use crate::gpu::memory::Address;
use crate::gpu::memory::wait;
use crate::gpu::stream::Stream;
use crate::pm::Mapping;
use crate::table::Table;
use crate::{Error, Result};

/// Most positions of a part.
const PART_OPS_MAX: u32 = 1 << 24;

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
    fn parts(
        self,
        device_table: &DeviceTable,
        table: &Table<Mapping>,
    ) -> impl Iterator<Item = Operands> + use<> {
        let part = device_table.part_ops(PART_OPS_MAX, 0, 0);
        let (key_size, value_size) = sizes(table);
        (0..self.len)
            .step_by(part as usize)
            .map(move |first| Operands {
                keys: self.keys + (first * key_size) as u64,
                values: self.values + (first * value_size) as u64,
                answers: self.answers + first as u64 / 8,
                len: u32::try_from(self.len - first).map_or(part, |rest| rest.min(part)),
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
    /// The operands must be addresses of this device that are valid for their lengths during the call.
    /// Meanwhile nobody else may write to keys and values, or use the answers.
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
        self.service.serve_on_device(table, |server| {
            let device_table = on_device(server)?;
            let written = device_table.exclusively(table, |exclusive| {
                exclusive.batch_stream.follow(stream)?;
                for part in operands.parts(device_table, table) {
                    exclusive.drain_slice_if_possible(part.len.into())?;
                    exclusive.batch_stream.make_way(part.len, 0, 0);
                    // SAFETY: the part lies within the operands, which the caller keeps valid. The batch
                    // is ended here; after an error, dropping the stream waits for it.
                    let batch = unsafe { exclusive.begin_write(verb, part)? };
                    exclusive.end_write(verb, batch)?;
                }
                Ok(())
            });
            // Also after an error, which some changes may have come before.
            table.note_change();
            written
        })
    }

    /// Looks up a batch whose keys, values and answers are in device memory. It is put on
    /// `stream`, and done when the stream has come past it; after an error nothing of it is under way.
    ///
    /// # Safety
    /// The operands must be addresses of this device that are valid for their lengths until the batch is
    /// done. Meanwhile nobody else may write to the keys, or use values and answers.
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
        self.service.serve_on_device(table, |server| {
            let device_table = on_device(server)?;
            let view = device_table.hold_view();
            let reader = device_table.readers.on(stream, &device_table.budget)?;
            let mut reader = reader.lock();
            let launched = operands
                .parts(device_table, table)
                .try_for_each(|part| -> Result<()> {
                    let order = reader.order(stream, part.len, view.file_len)?;
                    let counters = device_table.lookup_counters.address();
                    let mut launches = reader.launches(stream);
                    // SAFETY: the caller keeps the operands valid. Whoever frees the order's memory or what
                    // the view names waits for this reader before, whose end is noted below.
                    unsafe {
                        device_table.launch_read(
                            &mut launches,
                            *view,
                            verb,
                            part,
                            order,
                            counters,
                        )?;
                        launches.submit()?;
                    }
                    Ok(())
                });
            // Also after an error: some parts may be under way.
            let issued = reader.issued(stream).map_err(Error::from);
            if issued.is_err() || launched.is_err() {
                // What nobody can wait for later is waited for now.
                wait(stream)?;
                issued.and(launched)
            } else {
                Ok(())
            }
        })
    }

    /// Waits for what is on `stream`: lookups that were put there are done then.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), also if the GPU has failed since: what they found is then unknown.
    pub(crate) fn synchronize(&self, table: &Table<Mapping>, stream: &Stream) -> Result<()> {
        self.service.serve_on_device(table, |server| {
            let waited = wait(stream);
            on_device(server)?;
            Ok(waited?)
        })
    }
}

/// The device, which these verbs need.
fn on_device(server: Server<'_>) -> Result<&DeviceTable> {
    match server {
        Server::Device(device_table) => Ok(device_table),
        Server::Host(_) => Err(Error::Gpu {
            what: "running a batch on device slices",
            found: "an index whose GPU has failed".into(),
            expected: "the same batch on slices of the host, or an index that is opened again"
                .into(),
        }),
    }
}
