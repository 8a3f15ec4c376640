//! The CUDA engine: a batch is copied to the device and executed there by warps, on the same file
//! and with the same answers as the CPU engine.
//!
//! The file is pinned and mapped into the GPU's address space, where it has the addresses that it
//! has for the process. Kernels store into it directly. Levels are copied to device memory, as
//! far as there is room, so that probing costs no access to the file.
//!
//! Batches that change the table run one after another; look-ups run beside them and beside each
//! other, each on a stream of its own. A look-up holds the view of the table while it runs; who
//! changes the view, or frees what a look-up may still read, waits until none is held.

mod channel;
mod device;
mod driver;
mod growth;
mod kernels;
mod memory;
mod mirror;
mod registration;
mod supply;
mod survey;
mod view;

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

use bytemuck::Zeroable;
use cust::stream::Stream;
use fixedbitset::FixedBitSet;

use crate::index::table::Table;
use crate::pm::{Mapping, Medium};
use crate::{Error, Result};
use channel::{Channel, Operands};
use device::Device;
use kernels::Kernels;
use memory::{DeviceMemory, fill, wait};
use mirror::Mirror;
use registration::Registration;
use supply::Supply;
use view::{Address, BatchView, Counters, GroupsView, TableView};

pub(crate) use kernels::{Read, Write};

/// Most positions that are on the device at a time; a multiple of 64.
const PART: usize = 1 << 18;

/// Most bytes of keys and values that are on the device at a time.
const PART_BYTES: usize = 64 << 20;

/// Runs batches on a GPU.
pub(crate) struct CudaEngine {
    // Attached goes before the device whose memory it has.
    attached: Option<Attached>,
    /// What a survey has made and attaching needs as well.
    surveyed: Option<(Kernels, Registration)>,
    device: Device,
    ordinal: u32,
    mirror: bool,
}

/// What the engine keeps for its table.
struct Attached {
    kernels: Kernels,
    /// Held by look-ups while they run.
    view: RwLock<TableView>,
    /// Held by whoever changes the table.
    writer: Mutex<Writer>,
    channels: Mutex<Vec<Channel>>,
}

/// What only one batch at a time may use.
struct Writer {
    supply: Supply,
    mirror: Mirror,
    /// One bit for each page of the file that was stored to since it was last saved; empty where
    /// stores need no checkpoint.
    dirty: DeviceMemory,
    /// Buckets of the bottom level that a resize under way has emptied.
    drained: u64,
    registration: Registration,
}

impl CudaEngine {
    /// Opens the device.
    ///
    /// # Errors
    /// [`Error::Gpu`] if it is absent or too old.
    pub(crate) fn open(ordinal: u32, mirror: bool) -> Result<Self> {
        let device = Device::open(ordinal)?;
        tracing::info!(device = device.name(), ordinal, "the CUDA engine is open");
        Ok(Self {
            attached: None,
            surveyed: None,
            device,
            ordinal,
            mirror,
        })
    }

    /// Ordinal of the device.
    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Takes a table over: from here to [`detach`](Self::detach) only this engine changes it.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the file cannot be pinned.
    pub(crate) fn attach(&mut self, table: &Table<Mapping>) -> Result<()> {
        self.device.enter()?;
        let (kernels, registration) = self.prepare(table)?;
        let attached = Attached {
            kernels,
            view: RwLock::new(TableView::zeroed()),
            writer: Mutex::new(Writer {
                supply: Supply::new(table.shape.record_stride)?,
                mirror: Mirror::new(self.mirror),
                dirty: DeviceMemory::new(0)?,
                drained: 0,
                registration,
            }),
            channels: Mutex::default(),
        };
        let channel = attached.channel()?;
        let mut writer = attached.writer();
        *attached.view_alone() = writer.mirror.add_table(table, &channel.stream)?;
        attached.extend(table, &mut writer, &channel)?;
        drop(writer);
        attached.give(channel);
        table.set_drained_by_engine(true);
        self.attached = Some(attached);
        Ok(())
    }

    /// The kernels for a table, and its file pinned.
    fn prepare(&mut self, table: &Table<Mapping>) -> Result<(Kernels, Registration)> {
        if let Some(prepared) = self.surveyed.take() {
            return Ok(prepared);
        }
        let kernels = Kernels::load(&self.device, table.shape.key_size)?;
        let mut registration = Registration::new(table.medium.base());
        // SAFETY: the mapping keeps what it has mapped where it is, and outlives the engine.
        unsafe { registration.extend(table.medium.len())? };
        Ok((kernels, registration))
    }

    fn attached(&self) -> Result<&Attached> {
        self.device.enter()?;
        self.attached.as_ref().ok_or_else(|| Error::Gpu {
            what: "running a batch",
            found: "an engine without a table".into(),
            expected: "an open index".into(),
        })
    }

    /// Finishes what is under way and gives the table back. It may be closed then.
    ///
    /// # Errors
    /// [`Error::Gpu`]; the table was not given back, and its file is as after a crash.
    pub(crate) fn detach(&mut self, table: &Table<Mapping>) -> Result<()> {
        let attached = self.attached()?;
        let mut writer = attached.writer();
        let mut channel = attached.channel()?;
        let drained = attached.finish_draining(table, &mut writer, &mut channel);
        if let Err(error) = &drained {
            tracing::warn!(%error, "the resize is left for the next open");
        }
        writer.supply.hand_back(table, &channel.stream)?;
        attached.save_dirty(table, &writer, &channel)?;
        drop((channel, writer));
        self.attached = None;
        // What the GPU could not empty is not for the host, which has not followed its changes.
        table.set_drained_by_engine(drained.is_err());
        Ok(())
    }

    /// Executes a batch that changes the table. `values` is empty for [`Write::Remove`].
    ///
    /// # Errors
    /// [`Error::Gpu`], [`Error::Damaged`], and those of a table that cannot grow.
    pub(crate) fn write(
        &self,
        table: &Table<Mapping>,
        verb: Write,
        keys: &[u8],
        values: &[u8],
    ) -> Result<FixedBitSet> {
        let attached = self.attached()?;
        let (key_size, value_size) = sizes(table);
        let value_size = if verb == Write::Remove { 0 } else { value_size };
        let len = keys.len() / key_size;
        let mut answers = FixedBitSet::with_capacity(len);
        let part = part_len(key_size + value_size);
        let stage = |channel: &mut Channel, first: usize| {
            let end = len.min(first + part);
            let values = &values[first * value_size..end * value_size];
            let keys = &keys[first * key_size..end * key_size];
            channel.stage((end - first) as u32, keys, values, values.len())
        };
        if len == 0 {
            return Ok(answers);
        }
        let mut writer = attached.writer();
        let mut channel = attached.channel()?;
        let mut operands = stage(&mut channel, 0)?;
        for first in (0..len).step_by(part) {
            // The next part travels while this one is executed.
            let batch = attached.begin_write(table, &mut writer, &mut channel, verb, operands)?;
            let next = if first + part < len {
                let mut next = attached.channel()?;
                Some((stage(&mut next, first + part)?, next))
            } else {
                None
            };
            attached.end_write(table, &mut writer, &mut channel, verb, batch)?;
            keep(&mut answers, first, channel.fetched_answers(operands.len));
            let done = match next {
                Some((staged, next)) => {
                    operands = staged;
                    std::mem::replace(&mut channel, next)
                }
                None => break,
            };
            attached.give(done);
        }
        attached.give(channel);
        Ok(answers)
    }

    /// Copies the values of the keys that are there.
    ///
    /// # Errors
    /// [`Error::Gpu`], [`Error::Damaged`].
    pub(crate) fn get(
        &self,
        table: &Table<Mapping>,
        keys: &[u8],
        values: &mut [u8],
    ) -> Result<FixedBitSet> {
        let attached = self.attached()?;
        let (key_size, value_size) = sizes(table);
        let len = keys.len() / key_size;
        let part = part_len(key_size + value_size);
        let mut answers = FixedBitSet::with_capacity(len);
        let view = attached.hold_view();
        let mut under_way: Option<(Channel, usize, u32)> = None;
        for first in (0..len).step_by(part).map(Some).chain([None]) {
            // One part is copied to the caller while the next one is looked up.
            let next = match first {
                Some(first) => {
                    let end = len.min(first + part);
                    let mut channel = attached.channel()?;
                    let some = (end - first) as u32;
                    let room = (end - first) * value_size;
                    let keys = &keys[first * key_size..end * key_size];
                    let operands = channel.stage(some, keys, &[], room)?;
                    attached.begin_read(*view, &mut channel, Read::Get, operands)?;
                    channel.fetch_values(room)?;
                    Some((channel, first, some))
                }
                None => None,
            };
            if let Some((channel, first, some)) = std::mem::replace(&mut under_way, next) {
                attached.end_read(table, &channel)?;
                keep(&mut answers, first, channel.fetched_answers(some));
                let values = &mut values[first * value_size..][..some as usize * value_size];
                copy_found(
                    values,
                    channel.fetched_values(),
                    value_size,
                    &answers,
                    first,
                );
                attached.give(channel);
            }
        }
        Ok(answers)
    }

    /// Says which keys are there.
    ///
    /// # Errors
    /// [`Error::Gpu`], [`Error::Damaged`].
    pub(crate) fn contains(&self, table: &Table<Mapping>, keys: &[u8]) -> Result<FixedBitSet> {
        let attached = self.attached()?;
        let (key_size, _) = sizes(table);
        let len = keys.len() / key_size;
        let part = part_len(key_size);
        let mut answers = FixedBitSet::with_capacity(len);
        let view = attached.hold_view();
        for first in (0..len).step_by(part) {
            let end = len.min(first + part);
            let mut channel = attached.channel()?;
            let some = (end - first) as u32;
            let operands = channel.stage(some, &keys[first * key_size..end * key_size], &[], 0)?;
            attached.begin_read(*view, &mut channel, Read::Contains, operands)?;
            attached.end_read(table, &channel)?;
            keep(&mut answers, first, channel.fetched_answers(some));
            attached.give(channel);
        }
        Ok(answers)
    }

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
            let batch = attached.begin_write(table, &mut writer, &mut channel, verb, part)?;
            attached.end_write(table, &mut writer, &mut channel, verb, batch)?;
        }
        attached.give(channel);
        Ok(())
    }

    /// Looks up a batch whose keys, values and answers are in device memory, after what is on
    /// `stream`; it is done when the call returns.
    ///
    /// # Safety
    /// As [`write_device`](Self::write_device).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) unsafe fn read_device(
        &self,
        table: &Table<Mapping>,
        stream: &Stream,
        verb: Read,
        operands: DeviceOperands,
    ) -> Result<()> {
        let attached = self.attached()?;
        let view = attached.hold_view();
        let mut channel = attached.channel()?;
        channel.follow(stream)?;
        for part in operands.parts(table) {
            attached.begin_read(*view, &mut channel, verb, part)?;
            attached.end_read(table, &channel)?;
        }
        attached.give(channel);
        Ok(())
    }

    /// Makes room for `additional` more items.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn reserve(&self, table: &Table<Mapping>, additional: u64) -> Result<()> {
        let attached = self.attached()?;
        let mut writer = attached.writer();
        let mut channel = attached.channel()?;
        attached.reserve(table, &mut writer, &mut channel, additional)?;
        attached.give(channel);
        Ok(())
    }

    /// Drives a resize under way to its end.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn finish_draining(&self, table: &Table<Mapping>) -> Result<()> {
        let attached = self.attached()?;
        let mut writer = attached.writer();
        let mut channel = attached.channel()?;
        attached.finish_draining(table, &mut writer, &mut channel)?;
        attached.give(channel);
        Ok(())
    }

    /// Takes a checkpoint, where the domain has them.
    ///
    /// # Errors
    /// [`Error::Gpu`], and those of [`Table::sync`].
    pub(crate) fn sync(&self, table: &Table<Mapping>) -> Result<()> {
        let attached = self.attached()?;
        // The writer's lock keeps the GPU's stores away from the checkpoint.
        let writer = attached.writer();
        let channel = attached.channel()?;
        attached.save_dirty(table, &writer, &channel)?;
        attached.give(channel);
        table.sync()
    }
}

static_assertions::assert_impl_all!(CudaEngine: Send, Sync);

impl Drop for CudaEngine {
    fn drop(&mut self) {
        // Device memory is freed in the context of the calling thread.
        let _ = self.device.enter();
    }
}

impl Attached {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The view, for a launch of whoever holds the writer's lock.
    fn view_now(&self) -> TableView {
        *self.hold_view()
    }

    /// The view, kept as it is until the guard is dropped.
    fn hold_view(&self) -> std::sync::RwLockReadGuard<'_, TableView> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The view, when no look-up is under way.
    fn view_alone(&self) -> RwLockWriteGuard<'_, TableView> {
        self.view.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A channel for the caller alone.
    fn channel(&self) -> Result<Channel> {
        let idle = self
            .channels
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        idle.map_or_else(Channel::new, Ok)
    }

    /// Keeps a channel, whose stream has come to its end, for the next batch.
    fn give(&self, channel: Channel) {
        self.channels
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(channel);
    }

    /// Puts a batch that changes the table on its stream.
    fn begin_write(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut Channel,
        verb: Write,
        operands: Operands,
    ) -> Result<WriteBatch> {
        let len = operands.len;
        self.drain_slice(table, writer, channel, u64::from(len))?;
        let pending = channel.pending(len)?;
        let groups = (len > 1).then(|| channel.groups(len)).transpose()?;
        let view = BatchView {
            keys: operands.keys,
            values: operands.values,
            answers: operands.answers,
            pending,
            entry: groups.map_or(0, |groups| groups.entry),
            first: groups.map_or(0, |groups| groups.first),
            last: groups.map_or(0, |groups| groups.last),
            len,
            tile: self.kernels.tile(len),
            retry: 0,
            reserved: 0,
        };
        // SAFETY: the channel's buffers have been made for `len` positions, and stay until the
        // batch is done.
        unsafe {
            fill(
                &channel.stream,
                operands.answers,
                0,
                channel::answers_len(len),
            )?;
            if let Some(groups) = groups {
                self.kernels
                    .group(&channel.stream, groups, operands.keys, len)?;
            }
        }
        let batch = WriteBatch {
            operands,
            groups,
            view,
        };
        self.launch_write(table, writer, channel, verb, &batch)?;
        Ok(batch)
    }

    fn launch_write(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut Channel,
        verb: Write,
        batch: &WriteBatch,
    ) -> Result<()> {
        let len = batch.operands.len;
        writer.supply.prepare(
            table,
            &channel.stream,
            u64::from(len),
            verb != Write::Remove,
        )?;
        let counters = channel.counters()?;
        // SAFETY: the view's addresses are those of the file and of the mirror, which stay until
        // the batch is done; the writer's lock keeps other changes away.
        unsafe {
            let records = writer.supply.view();
            self.kernels.write(
                &channel.stream,
                verb,
                self.view_now(),
                records,
                batch.view,
                counters,
            )?;
            if let (Write::Update, Some(groups)) = (verb, batch.groups) {
                self.kernels
                    .spread(&channel.stream, groups, batch.operands.answers, len)?;
            }
        }
        channel.fetch_outcome(&batch.operands)
    }

    /// Waits for a batch, and grows the table as long as some of its operations need that.
    fn end_write(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut Channel,
        verb: Write,
        mut batch: WriteBatch,
    ) -> Result<()> {
        loop {
            wait(&channel.stream)?;
            let counters = channel.fetched_counters();
            writer.supply.settle(table, &counters);
            let done = counters.operations - counters.full - counters.starved;
            table.count_batch(done, counters.items as i64, counters.touches);
            self.check_damage(table, &counters)?;
            if counters.full + counters.starved == 0 {
                return Ok(());
            }
            if counters.starved > 0 {
                self.feed(table, writer, channel, counters.starved)?;
            }
            if counters.full > 0 {
                self.grow(table, writer, channel)?;
            }
            batch.view.retry = 1;
            self.launch_write(table, writer, channel, verb, &batch)?;
        }
    }

    fn begin_read(
        &self,
        table: TableView,
        channel: &mut Channel,
        verb: Read,
        operands: Operands,
    ) -> Result<()> {
        let counters = channel.counters()?;
        let mut view = BatchView::zeroed();
        view.keys = operands.keys;
        view.values = operands.values;
        view.answers = operands.answers;
        view.len = operands.len;
        view.tile = self.kernels.tile(operands.len);
        // SAFETY: the channel's buffers have been made for the batch; whoever holds the table's
        // view keeps what it names alive.
        unsafe {
            fill(
                &channel.stream,
                operands.answers,
                0,
                channel::answers_len(operands.len),
            )?;
            self.kernels
                .read(&channel.stream, verb, table, view, counters)?;
        }
        channel.fetch_outcome(&operands)
    }

    fn end_read(&self, table: &Table<Mapping>, channel: &Channel) -> Result<()> {
        wait(&channel.stream)?;
        let counters = channel.fetched_counters();
        table.count_batch(counters.operations, 0, counters.touches);
        self.check_damage(table, &counters)
    }

    fn check_damage(&self, table: &Table<Mapping>, counters: &Counters) -> Result<()> {
        if counters.damaged == 0 {
            return Ok(());
        }
        let found = "a record outside the file".into();
        Err(table.damaged("slot", counters.damaged, found))
    }
}

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
        })
    }
}

/// A batch on its stream.
struct WriteBatch {
    operands: Operands,
    groups: Option<GroupsView>,
    view: BatchView,
}

fn sizes(table: &Table<Mapping>) -> (usize, usize) {
    (
        table.shape.key_size as usize,
        table.shape.value_size as usize,
    )
}

/// Positions of `bytes` each that are on the device at a time: whole words of answers.
fn part_len(bytes: usize) -> usize {
    (PART_BYTES / bytes).clamp(64, PART) & !63
}

/// Enters the answer words of the positions from `first`, a multiple of 64, on.
fn keep(answers: &mut FixedBitSet, first: usize, words: impl Iterator<Item = u64>) {
    let blocks = &mut answers.as_mut_slice()[first / 64..];
    for (block, word) in blocks.iter_mut().zip(words) {
        *block = word as usize;
    }
}

/// Copies those values that were found.
fn copy_found(to: &mut [u8], from: &[u8], size: usize, answers: &FixedBitSet, first: usize) {
    use rayon::prelude::*;
    const TOGETHER: usize = 8192;
    let copy_part = |(part, (to, from)): (usize, (&mut [u8], &[u8]))| {
        let first = first + part * TOGETHER;
        for (nth, value) in to.chunks_exact_mut(size).enumerate() {
            if answers.contains(first + nth) {
                value.copy_from_slice(&from[nth * size..][..size]);
            }
        }
    };
    // Waking other threads takes longer than copying a small batch.
    if to.len() <= size * TOGETHER {
        copy_part((0, (to, from)));
    } else {
        to.par_chunks_mut(size * TOGETHER)
            .zip(from.par_chunks(size * TOGETHER))
            .enumerate()
            .for_each(copy_part);
    }
}
