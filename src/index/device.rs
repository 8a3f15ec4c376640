//! The verbs on slices in device memory: nothing is copied through the host.

use bytemuck::Pod;

use super::{Index, same_length};
use crate::device::{DeviceSlice, DeviceSliceMut, Stream, answer_words};
use crate::engine::Backend;
use crate::engine::Write;
use crate::engine::cuda::{CudaEngine, DeviceOperands, Read};
use crate::gpu;
use crate::{Error, Result};

/// Each of these is the verb of the same name on slices in the memory of the index's device. It
/// begins after what is on `stream`. `answers` needs [`answer_words`] words, all of which are
/// overwritten. Keys and answers must be aligned to 8 bytes.
///
/// They are done when the call returns: lookups because the slices are the caller's again then,
/// changes because the host makes the table grow where they need it to. The `_async` ones put a
/// lookup on the stream like a kernel and return at once. They are for a caller that can promise
/// that nothing touches the slices before the stream has come past it. Lookups and changes on other
/// streams run beside.
///
/// The slices must be of the primary context of the index's device, which the caller has retained for
/// them (with `cust`, by a `Context` of the device). The context that is current for the caller stays so.
///
/// All fail with [`Error::Gpu`] if the index does not run on a GPU, and with
/// [`Error::LengthMismatch`] or [`Error::InvalidOption`] for slices whose lengths or addresses do not fit, before
/// anything is done.
impl<K: Pod, V: Pod> Index<K, V> {
    /// [`insert`](Self::insert) on device slices.
    ///
    /// # Examples
    /// ```no_run
    /// # use gphash::device::{DeviceSlice, DeviceSliceMut, Stream};
    /// # fn example(
    /// #     index: &gphash::Index<u64, u64>,
    /// #     stream: Stream<'_>,
    /// #     keys: DeviceSlice<'_, u64>,
    /// #     values: DeviceSlice<'_, u64>,
    /// #     answers: DeviceSliceMut<'_, u64>,
    /// # ) -> gphash::Result<()> {
    /// // `answers` has `answer_words(keys.len())` words.
    /// index.insert_device(stream, keys, values, answers)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_device<'s>(
        &self,
        stream: impl Into<Stream<'s>>,
        keys: impl Into<DeviceSlice<'s, K>>,
        values: impl Into<DeviceSlice<'s, V>>,
        answers: impl Into<DeviceSliceMut<'s, u64>>,
    ) -> Result<()> {
        let values = Some(values.into());
        self.write_device(
            stream.into(),
            Write::Insert,
            keys.into(),
            values,
            answers.into(),
        )
    }

    /// [`upsert`](Self::upsert) on device slices.
    ///
    /// # Examples
    /// ```no_run
    /// # use gphash::device::{DeviceSlice, DeviceSliceMut, Stream};
    /// # fn example(
    /// #     index: &gphash::Index<u64, u64>,
    /// #     stream: Stream<'_>,
    /// #     keys: DeviceSlice<'_, u64>,
    /// #     values: DeviceSlice<'_, u64>,
    /// #     answers: DeviceSliceMut<'_, u64>,
    /// # ) -> gphash::Result<()> {
    /// index.upsert_device(stream, keys, values, answers)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`upsert`](Self::upsert).
    pub fn upsert_device<'s>(
        &self,
        stream: impl Into<Stream<'s>>,
        keys: impl Into<DeviceSlice<'s, K>>,
        values: impl Into<DeviceSlice<'s, V>>,
        answers: impl Into<DeviceSliceMut<'s, u64>>,
    ) -> Result<()> {
        let values = Some(values.into());
        self.write_device(
            stream.into(),
            Write::Upsert,
            keys.into(),
            values,
            answers.into(),
        )
    }

    /// [`update`](Self::update) on device slices.
    ///
    /// # Examples
    /// ```no_run
    /// # use gphash::device::{DeviceSlice, DeviceSliceMut, Stream};
    /// # fn example(
    /// #     index: &gphash::Index<u64, u64>,
    /// #     stream: Stream<'_>,
    /// #     keys: DeviceSlice<'_, u64>,
    /// #     values: DeviceSlice<'_, u64>,
    /// #     answers: DeviceSliceMut<'_, u64>,
    /// # ) -> gphash::Result<()> {
    /// index.update_device(stream, keys, values, answers)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn update_device<'s>(
        &self,
        stream: impl Into<Stream<'s>>,
        keys: impl Into<DeviceSlice<'s, K>>,
        values: impl Into<DeviceSlice<'s, V>>,
        answers: impl Into<DeviceSliceMut<'s, u64>>,
    ) -> Result<()> {
        let values = Some(values.into());
        self.write_device(
            stream.into(),
            Write::Update,
            keys.into(),
            values,
            answers.into(),
        )
    }

    /// [`remove`](Self::remove) on device slices.
    ///
    /// # Examples
    /// ```no_run
    /// # use gphash::device::{DeviceSlice, DeviceSliceMut, Stream};
    /// # fn example(
    /// #     index: &gphash::Index<u64, u64>,
    /// #     stream: Stream<'_>,
    /// #     keys: DeviceSlice<'_, u64>,
    /// #     answers: DeviceSliceMut<'_, u64>,
    /// # ) -> gphash::Result<()> {
    /// index.remove_device(stream, keys, answers)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_device<'s>(
        &self,
        stream: impl Into<Stream<'s>>,
        keys: impl Into<DeviceSlice<'s, K>>,
        answers: impl Into<DeviceSliceMut<'s, u64>>,
    ) -> Result<()> {
        self.write_device(
            stream.into(),
            Write::Remove,
            keys.into(),
            None,
            answers.into(),
        )
    }

    /// [`get`](Self::get) on device slices. Waits for `stream`.
    ///
    /// # Examples
    /// ```no_run
    /// # use gphash::device::{DeviceSlice, DeviceSliceMut, Stream};
    /// # fn example(
    /// #     index: &gphash::Index<u64, u64>,
    /// #     stream: Stream<'_>,
    /// #     keys: DeviceSlice<'_, u64>,
    /// #     values: DeviceSliceMut<'_, u64>,
    /// #     answers: DeviceSliceMut<'_, u64>,
    /// # ) -> gphash::Result<()> {
    /// index.get_device(stream, keys, values, answers)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get), but damage that it meets is told by the next
    /// [`sync`](Self::sync) or [`close`](Self::close).
    pub fn get_device<'s>(
        &self,
        stream: impl Into<Stream<'s>>,
        keys: impl Into<DeviceSlice<'s, K>>,
        values: impl Into<DeviceSliceMut<'s, V>>,
        answers: impl Into<DeviceSliceMut<'s, u64>>,
    ) -> Result<()> {
        let stream = stream.into();
        // SAFETY: the slices are borrowed until the stream has come past the lookup, and `synchronize`
        // waits for that. After an error nothing of the lookup is left on the stream.
        unsafe { self.get_device_async(stream, keys, values, answers)? };
        self.synchronize(stream)
    }

    /// As [`get_device`](Self::get_device), without waiting: it is done when `stream` has come past it.
    ///
    /// # Examples
    /// ```no_run
    /// # use gphash::device::{DeviceSlice, DeviceSliceMut, Stream};
    /// # fn example(
    /// #     index: &gphash::Index<u64, u64>,
    /// #     stream: Stream<'_>,
    /// #     keys: DeviceSlice<'_, u64>,
    /// #     values: DeviceSliceMut<'_, u64>,
    /// #     answers: DeviceSliceMut<'_, u64>,
    /// # ) -> gphash::Result<()> {
    /// // SAFETY: the slices are used only by kernels that come later on `stream`, and freed after it.
    /// unsafe { index.get_device_async(stream, keys, values, answers)? };
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// The slices must stay, and but for kernels behind it on `stream` nobody may change the keys or use
    /// values and answers, until the stream has come past it. (Freeing device memory waits for that.)
    ///
    /// # Errors
    /// As [`get_device`](Self::get_device).
    pub unsafe fn get_device_async<'s>(
        &self,
        stream: impl Into<Stream<'s>>,
        keys: impl Into<DeviceSlice<'s, K>>,
        values: impl Into<DeviceSliceMut<'s, V>>,
        answers: impl Into<DeviceSliceMut<'s, u64>>,
    ) -> Result<()> {
        let values = values.into();
        let values = (values.address(), values.len());
        let operands = operands(keys.into(), Some(values), answers.into())?;
        // SAFETY: the slices are device memory of these lengths, and the caller leaves them alone until
        // the stream has come past.
        unsafe { self.read_device(stream.into(), Read::Get, operands) }
    }

    /// [`contains`](Self::contains) on device slices. Waits for `stream`.
    ///
    /// # Examples
    /// ```no_run
    /// # use gphash::device::{DeviceSlice, DeviceSliceMut, Stream};
    /// # fn example(
    /// #     index: &gphash::Index<u64, u64>,
    /// #     stream: Stream<'_>,
    /// #     keys: DeviceSlice<'_, u64>,
    /// #     answers: DeviceSliceMut<'_, u64>,
    /// # ) -> gphash::Result<()> {
    /// index.contains_device(stream, keys, answers)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get_device`](Self::get_device).
    pub fn contains_device<'s>(
        &self,
        stream: impl Into<Stream<'s>>,
        keys: impl Into<DeviceSlice<'s, K>>,
        answers: impl Into<DeviceSliceMut<'s, u64>>,
    ) -> Result<()> {
        let stream = stream.into();
        // SAFETY: as in `get_device`.
        unsafe { self.contains_device_async(stream, keys, answers)? };
        self.synchronize(stream)
    }

    /// As [`contains_device`](Self::contains_device), without waiting: it is done when `stream` has come
    /// past it.
    ///
    /// # Examples
    /// ```no_run
    /// # use gphash::device::{DeviceSlice, DeviceSliceMut, Stream};
    /// # fn example(
    /// #     index: &gphash::Index<u64, u64>,
    /// #     stream: Stream<'_>,
    /// #     keys: DeviceSlice<'_, u64>,
    /// #     answers: DeviceSliceMut<'_, u64>,
    /// # ) -> gphash::Result<()> {
    /// // SAFETY: the slices are used only by kernels that come later on `stream`, and freed after it.
    /// unsafe { index.contains_device_async(stream, keys, answers)? };
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// As [`get_device_async`](Self::get_device_async).
    ///
    /// # Errors
    /// As [`get_device`](Self::get_device).
    pub unsafe fn contains_device_async<'s>(
        &self,
        stream: impl Into<Stream<'s>>,
        keys: impl Into<DeviceSlice<'s, K>>,
        answers: impl Into<DeviceSliceMut<'s, u64>>,
    ) -> Result<()> {
        let operands = operands(keys.into(), None, answers.into())?;
        // SAFETY: as in `get_device_async`.
        unsafe { self.read_device(stream.into(), Read::Contains, operands) }
    }

    /// Puts a lookup on `stream`.
    ///
    /// # Safety
    /// The operands must be device memory of their lengths; the rest is as for
    /// [`get_device_async`](Self::get_device_async).
    unsafe fn read_device(
        &self,
        stream: Stream<'_>,
        verb: Read,
        operands: DeviceOperands,
    ) -> Result<()> {
        let engine = self.engine_on_device()?;
        let stream = gpu::stream::Stream::of(stream.handle());
        // SAFETY: the same is asked of the caller.
        unsafe { engine.read_device(&self.table, &stream, verb, operands) }
    }

    /// Waits for what is on `stream`.
    fn synchronize(&self, stream: Stream<'_>) -> Result<()> {
        let stream = gpu::stream::Stream::of(stream.handle());
        self.engine_on_device()?.synchronize(&self.table, &stream)
    }

    fn write_device(
        &self,
        stream: Stream<'_>,
        verb: Write,
        keys: DeviceSlice<'_, K>,
        values: Option<DeviceSlice<'_, V>>,
        answers: DeviceSliceMut<'_, u64>,
    ) -> Result<()> {
        let values = values.map(|values| (values.address(), values.len()));
        let operands = operands(keys, values, answers)?;
        let stream = gpu::stream::Stream::of(stream.handle());
        // SAFETY: the slices are device memory of these lengths, borrowed for longer than the call, at
        // whose end the batch is done.
        unsafe {
            self.engine_on_device()?
                .write_device(&self.table, &stream, verb, operands)
        }
    }

    fn engine_on_device(&self) -> Result<&CudaEngine> {
        match self.backend()? {
            Backend::Cuda(engine) => Ok(engine),
            Backend::Cpu(_) => Err(Error::Gpu {
                what: "running a batch on device slices",
                found: "an index on the CPU engine".into(),
                expected: "an index opened with Engine::Cuda".into(),
            }),
        }
    }
}

/// The batch, with `values` as an address and a length.
fn operands<K>(
    keys: DeviceSlice<'_, K>,
    values: Option<(u64, usize)>,
    answers: DeviceSliceMut<'_, u64>,
) -> Result<DeviceOperands> {
    if let Some((_, len)) = values {
        same_length(keys.len(), len)?;
    }
    let needed = answer_words(keys.len());
    if answers.len() < needed {
        return Err(Error::InvalidOption {
            option: "answers",
            found: format!("{} words", answers.len()),
            expected: format!("at least {needed}, for {} keys", keys.len()),
        });
    }
    // An access that is not aligned is an error of the whole context, which the caller shares.
    for (option, address) in [("keys", keys.address()), ("answers", answers.address())] {
        if !address.is_multiple_of(8) {
            return Err(Error::InvalidOption {
                option,
                found: format!("a device address of {address:#x}"),
                expected: "a multiple of 8".into(),
            });
        }
    }
    Ok(DeviceOperands {
        keys: keys.address(),
        values: values.map_or(0, |(address, _)| address),
        answers: answers.address(),
        len: keys.len(),
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
