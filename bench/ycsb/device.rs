//! An index whose batches lie in device memory. Moving them there and back is not timed: what is
//! measured is the verb on device slices, from the call to its end.

use std::cell::RefCell;

use cust::memory::{CopyDestination, DeviceBuffer, DeviceCopy};
use cust::stream::{Stream, StreamFlags};

use bytemuck::Pod;
use gphash::{Index, Stats, answer_words};

use crate::target::{Done, Failure, Target, timed};

/// Runs the verbs of an index on device slices.
pub struct OnDevice<K: Pod, V: Pod>(pub Index<K, V>);

/// Device memory of one thread, made for the longest batch it has seen.
struct Buffers<K: DeviceCopy, V: DeviceCopy> {
    stream: Stream,
    keys: DeviceBuffer<K>,
    values: DeviceBuffer<V>,
    answers: DeviceBuffer<u64>,
}

/// What a verb needs of the buffers, as slices of the batch's length.
type Slices<'b, K, V> = (
    &'b Stream,
    &'b cust::memory::DeviceSlice<K>,
    &'b mut cust::memory::DeviceSlice<V>,
    &'b mut cust::memory::DeviceSlice<u64>,
);

thread_local! {
    static BUFFERS: RefCell<Option<Box<dyn std::any::Any>>> = const { RefCell::new(None) };
}

impl<K, V> OnDevice<K, V>
where
    K: Pod + DeviceCopy,
    V: Pod + DeviceCopy,
{
    /// Moves keys and values to the device, times `verb`, counts the answers.
    fn on_device(
        &self,
        keys: &[K],
        values: Option<&[V]>,
        verb: impl FnOnce(Slices<K, V>) -> gphash::Result<()>,
        back: Option<&mut [V]>,
    ) -> Result<Done, Failure> {
        // The index makes its device current for the thread that asks it anything.
        self.0.contains(&[])?;
        BUFFERS.with_borrow_mut(|kept| {
            let fits = kept
                .as_ref()
                .and_then(|kept| kept.downcast_ref::<Buffers<K, V>>())
                .is_some_and(|buffers| buffers.keys.len() >= keys.len());
            if !fits {
                *kept = Some(Box::new(Buffers::<K, V>::new(keys.len())?));
            }
            let buffers = kept
                .as_mut()
                .and_then(|kept| kept.downcast_mut::<Buffers<K, V>>())
                .ok_or("buffers of another type")?;
            let len = keys.len();
            buffers.keys.index(0..len).copy_from(keys)?;
            if let Some(values) = values {
                buffers.values.index(0..len).copy_from(values)?;
            }
            let words = answer_words(len);
            let mut answers = vec![0u64; words];
            let done = timed(|| {
                let keys = buffers.keys.index(0..len);
                let mut values = buffers.values.index(0..len);
                let mut found = buffers.answers.index(0..words);
                verb((&buffers.stream, &keys, &mut values, &mut found))?;
                buffers.stream.synchronize()?;
                Ok(0)
            })?;
            buffers.answers.index(0..words).copy_to(&mut answers)?;
            if let Some(back) = back {
                buffers.values.index(0..len).copy_to(back)?;
            }
            Ok(Done {
                count: answers.iter().map(|word| word.count_ones() as usize).sum(),
                ..done
            })
        })
    }
}

impl<K: DeviceCopy, V: DeviceCopy> Buffers<K, V> {
    fn new(len: usize) -> Result<Self, Failure> {
        // SAFETY: nothing is read before it is written: keys and values of a batch are copied
        // in, answers are written by the verb.
        unsafe {
            Ok(Self {
                stream: Stream::new(StreamFlags::NON_BLOCKING, None)?,
                keys: DeviceBuffer::uninitialized(len)?,
                values: DeviceBuffer::uninitialized(len)?,
                answers: DeviceBuffer::uninitialized(answer_words(len))?,
            })
        }
    }
}

impl<K, V> Target<K, V> for OnDevice<K, V>
where
    K: Pod + DeviceCopy + Send + Sync,
    V: Pod + DeviceCopy + Send + Sync,
{
    fn get(&self, keys: &[K], values: &mut [V]) -> Result<Done, Failure> {
        let verb = |(stream, keys, values, found): Slices<K, V>| {
            self.0.get_device(stream, keys, values, found)
        };
        self.on_device(keys, None, verb, Some(values))
    }

    fn insert(&self, keys: &[K], values: &[V]) -> Result<Done, Failure> {
        let verb = |(stream, keys, values, found): Slices<K, V>| {
            self.0.insert_device(stream, keys, values, found)
        };
        self.on_device(keys, Some(values), verb, None)
    }

    fn update(&self, keys: &[K], values: &[V]) -> Result<Done, Failure> {
        let verb = |(stream, keys, values, found): Slices<K, V>| {
            self.0.update_device(stream, keys, values, found)
        };
        self.on_device(keys, Some(values), verb, None)
    }

    fn remove(&self, keys: &[K]) -> Result<Done, Failure> {
        let verb =
            |(stream, keys, _, found): Slices<K, V>| self.0.remove_device(stream, keys, found);
        self.on_device(keys, None, verb, None)
    }

    fn stats(&self) -> Option<Stats> {
        Some(self.0.stats())
    }
}
