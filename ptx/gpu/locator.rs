//! Copies of the buckets of a store's partitions in device memory, and where the records of keys are by them: the
//! device answers from there, and never reads the store's files.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;

use bytemuck::{Pod, Zeroable, bytes_of, cast_slice, cast_slice_mut};

use super::abi::DIRECTORY;
use super::device::Device;
use super::error::Result;
use super::launch::{Blocks, Function, Launch};
use super::memory::{Address, DeviceMemory, PinnedMemory, copy_in, copy_out, wait};
use super::module::Module;
use super::stream::Stream;

/// Lanes that look a fingerprint up together.
const GROUP: u32 = 8;

/// Partitions that there may be: each number has a view.
const PARTITIONS: usize = 1 << u8::BITS;

/// Bytes of a slot, and of what a thread copies at a time.
const UNIT: u32 = 16;

/// The shape of the tables of all partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableShape {
    /// Bytes of a bucket, a multiple of 16.
    pub bucket_size: u32,
    pub slots: u32,
    /// Hash locations of a key.
    pub locations: u32,
}

/// The buckets of a partition's table, as one launch sees them.
#[derive(Debug, Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct BucketsView {
    levels: [Address; DIRECTORY],
    bottom_level: u32,
    /// One above the highest level.
    level_end: u32,
    bucket_size: u32,
    slots: u32,
    locations: u32,
    reserved: u32,
}

/// A bucket of a partition: its level, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketId {
    pub partition: u8,
    pub level: u32,
    pub number: u64,
}

/// See the [module](self). Nothing of it is durable.
pub struct Locator {
    // Goes before the device whose memory it has.
    parts: ManuallyDrop<Parts>,
    device: Device,
    shape: TableShape,
}

struct Parts {
    stream: Stream,
    kernels: Kernels,
    tables: Vec<Copies>,
    /// What a launch is told of them.
    views: DeviceMemory,
    views_differ: bool,
    told: Vec<BucketsView>,
    /// Buckets on their way to the device, and there.
    staged: PinnedMemory,
    arrived: DeviceMemory,
    /// Fingerprints, then partitions, on their way and there.
    asked: PinnedMemory,
    questions: DeviceMemory,
    answers: DeviceMemory,
    answered: PinnedMemory,
}

struct Kernels {
    find_records: Function,
    store_buckets: Function,
    blocks: Blocks,
    // The functions are its.
    _module: Module,
}

/// The levels of a partition's table that are copied.
#[derive(Default)]
struct Copies {
    levels: Vec<DeviceMemory>,
    /// The number of the first one.
    bottom: u32,
}

impl Locator {
    /// Opens the device with this ordinal and loads the kernels, for tables of one shape.
    ///
    /// # Errors
    /// [`Error`](super::error::Error) if there is no driver, no such device, or one that is too old.
    pub fn open(ordinal: u32, shape: TableShape) -> Result<Self> {
        let device = Device::open(ordinal)?;
        let entered = device.enter()?;
        let parts = Parts {
            stream: Stream::new()?,
            kernels: Kernels::load(&device)?,
            tables: (0..PARTITIONS).map(|_| Copies::default()).collect(),
            views: DeviceMemory::new(PARTITIONS * size_of::<BucketsView>())?,
            views_differ: true,
            told: Vec::new(),
            staged: PinnedMemory::empty(),
            arrived: DeviceMemory::new(0)?,
            asked: PinnedMemory::empty(),
            questions: DeviceMemory::new(0)?,
            answers: DeviceMemory::new(0)?,
            answered: PinnedMemory::empty(),
        };
        drop(entered);
        Ok(Self {
            parts: ManuallyDrop::new(parts),
            device,
            shape,
        })
    }

    /// Makes room for the `live` levels of a partition's table, in place of those before, of which it has the `kept` ones
    /// already. What is in the others means nothing before it is [stored](Self::store).
    ///
    /// # Errors
    /// [`Error`](super::error::Error) if the device has no room. The partition then has no levels.
    pub fn make_room(
        &mut self,
        partition: u8,
        live: &RangeInclusive<u32>,
        kept: &RangeInclusive<u32>,
    ) -> Result<()> {
        let _entered = self.device.enter()?;
        let bucket_size = self.shape.bucket_size as usize;
        self.parts.views_differ = true;
        let copies = &mut self.parts.tables[usize::from(partition)];
        let before = std::mem::take(copies);
        let mut levels: BTreeMap<u32, DeviceMemory> =
            (before.bottom..).zip(before.levels).collect();
        // What is given up makes room for what is new.
        levels.retain(|level, _| kept.contains(level));
        let room = |level| {
            let kept = levels.remove(&level).map(Ok);
            kept.unwrap_or_else(|| DeviceMemory::new(bucket_size << level))
        };
        let levels = live.clone().map(room).collect::<Result<Vec<_>>>()?;
        let bottom = *live.start();
        *copies = Copies { levels, bottom };
        Ok(())
    }

    /// Memory for up to `count` buckets on their way to the device, as words.
    ///
    /// # Errors
    /// [`Error`](super::error::Error) when the host cannot pin so much.
    pub fn staging(&mut self, count: usize) -> Result<&mut [u64]> {
        let _entered = self.device.enter()?;
        let bucket = self.shape.bucket_size as usize;
        let staged = &mut self.parts.staged;
        staged.reserve(count * (bucket + size_of::<Address>()))?;
        Ok(cast_slice_mut(&mut staged.bytes_mut()[..count * bucket]))
    }

    /// Stores buckets where they belong, whose bytes are in the [staging](Self::staging) memory in this order, and waits
    /// until they are there.
    ///
    /// # Errors
    /// [`Error`](super::error::Error). What is there then means nothing.
    ///
    /// # Panics
    /// If one is in no level that there is [room](Self::make_room) for, or if there was no staging memory for as many.
    pub fn store(&mut self, buckets: &[BucketId]) -> Result<()> {
        let _entered = self.device.enter()?;
        let bucket = self.shape.bucket_size as usize;
        let Parts {
            stream,
            kernels,
            tables,
            staged,
            arrived,
            ..
        } = &mut *self.parts;
        let (bytes, rest) = staged.bytes_mut().split_at_mut(buckets.len() * bucket);
        let targets: &mut [Address] = cast_slice_mut(&mut rest[..buckets.len() * 8]);
        for (target, id) in targets.iter_mut().zip(buckets) {
            let copies = &tables[usize::from(id.partition)];
            let level = id.level.checked_sub(copies.bottom);
            let level = level.and_then(|nth| copies.levels.get(nth as usize));
            let level = level.expect("there is room for the level");
            let within = id.number * bucket as u64;
            assert!(within < level.len() as u64, "the level has the bucket");
            *target = level.address() + within;
        }
        let len = buckets.len() * (bucket + size_of::<Address>());
        arrived.reserve(len)?;
        let (at, targets) = (arrived.address(), arrived.address() + bytes.len() as u64);
        let count = u32::try_from(buckets.len()).expect("they are staged in memory");
        let units = self.shape.bucket_size / UNIT;
        let threads = count.saturating_mul(units);
        // SAFETY: the block is as long as what is copied there, each target is a bucket of a level that stays, and
        // nobody changes the staged bytes before the stream has been waited for.
        let launched = unsafe {
            copy_in(stream, at, &staged.bytes()[..len]).and_then(|()| {
                let arguments = [
                    bytes_of(&at),
                    bytes_of(&targets),
                    bytes_of(&count),
                    bytes_of(&units),
                ];
                (&*stream).put(
                    kernels.store_buckets,
                    kernels.blocks.for_threads(threads),
                    &arguments,
                )
            })
        };
        let waited = wait(stream);
        launched.and(waited)
    }

    /// Where the caller puts the fingerprints of `len` keys, and the numbers of their partitions.
    ///
    /// # Errors
    /// [`Error`](super::error::Error) when the host cannot pin so much.
    pub fn questions(&mut self, len: usize) -> Result<(&mut [u64], &mut [u8])> {
        let _entered = self.device.enter()?;
        let asked = &mut self.parts.asked;
        asked.reserve((len * 9).max(8))?;
        let (fingerprints, partitions) = asked.bytes_mut()[..len * 9].split_at_mut(len * 8);
        Ok((cast_slice_mut(fingerprints), partitions))
    }

    /// For each of the first `len` [questions](Self::questions), the offset of the record that a slot of the copied
    /// buckets names beside the fingerprint, in the file of the partition; 0 if none does, or if it is not in the
    /// nearest buckets. Another key may have the fingerprint.
    ///
    /// # Errors
    /// [`Error`](super::error::Error).
    pub fn find(&mut self, len: usize) -> Result<(&[u64], &[u8])> {
        let _entered = self.device.enter()?;
        let parts = &mut *self.parts;
        parts.questions.reserve(len * 9)?;
        parts.answers.reserve(len * 8)?;
        parts.answered.reserve((len * 8).max(8))?;
        if parts.views_differ {
            let views = parts.tables.iter().map(|copies| copies.view(self.shape));
            parts.told = views.collect();
        }
        let launched = parts.launch(len);
        let waited = wait(&parts.stream);
        launched.and(waited)?;
        parts.views_differ = false;
        let answers = cast_slice(&parts.answered.bytes()[..len * 8]);
        Ok((answers, &parts.asked.bytes()[len * 8..][..len]))
    }
}

impl Parts {
    fn launch(&mut self, len: usize) -> Result<()> {
        let views = match self.views_differ {
            true => cast_slice(&self.told),
            false => &[],
        };
        let count = u32::try_from(len).expect("keys are asked for in parts");
        let (stream, kernels) = (&self.stream, &self.kernels);
        let (views_there, fingerprints) = (self.views.address(), self.questions.address());
        let (partitions, answers) = (fingerprints + len as u64 * 8, self.answers.address());
        let blocks = kernels.blocks.for_threads(count.saturating_mul(GROUP));
        // SAFETY: the blocks are as long as the kernel takes them to be. Each number of a partition
        // has a view, whose levels stay.
        // Nobody looks at the answers, or changes what is copied, before the caller has waited for the stream.
        unsafe {
            copy_in(stream, views_there, views)?;
            copy_in(stream, fingerprints, &self.asked.bytes()[..len * 9])?;
            let arguments = [
                bytes_of(&views_there),
                bytes_of(&partitions),
                bytes_of(&fingerprints),
                bytes_of(&answers),
                bytes_of(&count),
            ];
            (&*stream).put(kernels.find_records, blocks, &arguments)?;
            copy_out(stream, &mut self.answered.bytes_mut()[..len * 8], answers)
        }
    }
}

impl Copies {
    /// Without levels there are no buckets to look at.
    fn view(&self, shape: TableShape) -> BucketsView {
        let mut levels = [0; DIRECTORY];
        for (level, memory) in levels
            .iter_mut()
            .skip(self.bottom as usize)
            .zip(&self.levels)
        {
            *level = memory.address();
        }
        let count = u32::try_from(self.levels.len()).expect("levels are few");
        BucketsView {
            levels,
            bottom_level: self.bottom,
            level_end: self.bottom + count,
            bucket_size: shape.bucket_size,
            slots: shape.slots,
            locations: shape.locations,
            reserved: 0,
        }
    }
}

impl Kernels {
    /// Loads the kernels into the current context.
    fn load(device: &Device) -> Result<Self> {
        let module = Module::load(crate::LOCATOR)?;
        Ok(Self {
            find_records: module.function("find_records")?,
            store_buckets: module.function("store_buckets")?,
            blocks: Blocks::of(device),
            _module: module,
        })
    }
}

impl Drop for Locator {
    fn drop(&mut self) {
        // Device memory is freed in the context of the calling thread.
        let _entered = self.device.enter();
        // SAFETY: nobody uses it after this.
        unsafe { ManuallyDrop::drop(&mut self.parts) };
    }
}

static_assertions::assert_impl_all!(Locator: Send);
