//! The verbs on slices in device memory: nothing is copied through the host.

use bytemuck::Pod;
use cust::memory::{DeviceCopy, DeviceSlice};
use cust::stream::Stream;

use super::{Index, same_length};
use crate::engine::Backend;
use crate::engine::Write;
use crate::engine::cuda::{CudaEngine, DeviceOperands, Read};
use crate::{Error, Result};

/// Words of answers of a batch of `len` operations: bit *i* mod 64 of word *i* / 64 is the answer
/// of operation *i*.
pub const fn answer_words(len: usize) -> usize {
    len.div_ceil(64)
}

/// Each of these is the verb of the same name on slices in the memory of the index's device. It
/// begins after what is on `stream`. `answers` needs [`answer_words`] words, all of which are
/// overwritten. Keys must be aligned to 8 bytes.
///
/// Look-ups are put on the stream like a kernel: when the call returns they are not done yet, and
/// the slices must stay until the stream has come past them (freeing device memory waits for that).
/// Look-ups and changes on other streams run beside them. Changes are done when the call returns,
/// because the host makes the table grow where they need it to.
///
/// All fail with [`Error::Gpu`] if the index does not run on a GPU, and with
/// [`Error::LengthMismatch`] for slices whose lengths do not fit, before anything is done.
impl<K: Pod + DeviceCopy, V: Pod + DeviceCopy> Index<K, V> {
    /// [`insert`](Self::insert) on device slices.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_device(
        &self,
        stream: &Stream,
        keys: &DeviceSlice<K>,
        values: &DeviceSlice<V>,
        answers: &mut DeviceSlice<u64>,
    ) -> Result<()> {
        self.write_device(stream, Write::Insert, keys, Some(values), answers)
    }

    /// [`upsert`](Self::upsert) on device slices.
    ///
    /// # Errors
    /// As [`upsert`](Self::upsert).
    pub fn upsert_device(
        &self,
        stream: &Stream,
        keys: &DeviceSlice<K>,
        values: &DeviceSlice<V>,
        answers: &mut DeviceSlice<u64>,
    ) -> Result<()> {
        self.write_device(stream, Write::Upsert, keys, Some(values), answers)
    }

    /// [`update`](Self::update) on device slices.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn update_device(
        &self,
        stream: &Stream,
        keys: &DeviceSlice<K>,
        values: &DeviceSlice<V>,
        answers: &mut DeviceSlice<u64>,
    ) -> Result<()> {
        self.write_device(stream, Write::Update, keys, Some(values), answers)
    }

    /// [`remove`](Self::remove) on device slices.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_device(
        &self,
        stream: &Stream,
        keys: &DeviceSlice<K>,
        answers: &mut DeviceSlice<u64>,
    ) -> Result<()> {
        self.write_device(stream, Write::Remove, keys, None, answers)
    }

    /// [`get`](Self::get) on device slices; done when `stream` has come past it.
    ///
    /// # Errors
    /// As [`get`](Self::get), but damage that it meets is told by the next
    /// [`sync`](Self::sync) or [`close`](Self::close).
    pub fn get_device(
        &self,
        stream: &Stream,
        keys: &DeviceSlice<K>,
        values: &mut DeviceSlice<V>,
        answers: &mut DeviceSlice<u64>,
    ) -> Result<()> {
        let operands = operands(keys, Some(values), answers)?;
        // SAFETY: the slices are device memory of these lengths, borrowed until the batch is on its
        // stream; the driver frees such memory only when the device has come to the end of its work.
        unsafe {
            self.engine_on_device()?
                .read_device(&self.table, stream, Read::Get, operands)
        }
    }

    /// [`contains`](Self::contains) on device slices; done when `stream` has come past it.
    ///
    /// # Errors
    /// As [`get_device`](Self::get_device).
    pub fn contains_device(
        &self,
        stream: &Stream,
        keys: &DeviceSlice<K>,
        answers: &mut DeviceSlice<u64>,
    ) -> Result<()> {
        let operands = operands::<K, V>(keys, None, answers)?;
        // SAFETY: as above.
        unsafe {
            self.engine_on_device()?
                .read_device(&self.table, stream, Read::Contains, operands)
        }
    }

    fn write_device(
        &self,
        stream: &Stream,
        verb: Write,
        keys: &DeviceSlice<K>,
        values: Option<&DeviceSlice<V>>,
        answers: &mut DeviceSlice<u64>,
    ) -> Result<()> {
        let operands = operands(keys, values, answers)?;
        // SAFETY: as above.
        unsafe {
            self.engine_on_device()?
                .write_device(&self.table, stream, verb, operands)
        }
    }

    fn engine_on_device(&self) -> Result<&CudaEngine> {
        match &self.backend {
            Backend::Cuda(engine) => Ok(engine),
            Backend::Cpu(_) => Err(Error::Gpu {
                what: "running a batch on device slices",
                found: "an index on the CPU engine".into(),
                expected: "an index opened with Engine::Cuda".into(),
            }),
        }
    }
}

fn operands<K: DeviceCopy, V: DeviceCopy>(
    keys: &DeviceSlice<K>,
    values: Option<&DeviceSlice<V>>,
    answers: &DeviceSlice<u64>,
) -> Result<DeviceOperands> {
    if let Some(values) = values {
        same_length(keys.len(), values.len())?;
    }
    if answers.len() < answer_words(keys.len()) {
        return Err(Error::LengthMismatch {
            keys: keys.len(),
            values: answers.len() * 64,
        });
    }
    let keys_at = keys.as_device_ptr().as_raw();
    if !keys_at.is_multiple_of(8) {
        return Err(Error::InvalidOption {
            option: "keys",
            found: format!("a device address of {keys_at:#x}"),
            expected: "a multiple of 8".into(),
        });
    }
    Ok(DeviceOperands {
        keys: keys_at,
        values: values.map_or(0, |values| values.as_device_ptr().as_raw()),
        answers: answers.as_device_ptr().as_raw(),
        len: keys.len(),
    })
}
