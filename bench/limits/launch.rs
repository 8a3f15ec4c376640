//! Kernels that do one kind of access and nothing else, and how long they take.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use cust::context::{Context, CurrentContext};
use cust::device::{Device, DeviceAttribute};
use cust::event::{Event, EventFlags};
use cust::function::Function;
use cust::memory::DeviceBuffer;
use cust::module::{Module, ModuleJitOption};
use cust::stream::{Stream, StreamFlags};
use cust::sys;

use crate::region::Region;
use crate::workload::target::Failure;

/// The compiled kernels; `ptx/build.py` makes them from `limits.cu`.
const PTX: &str = include_str!("limits.ptx");

/// Threads of a block.
const THREADS: u32 = 256;

/// What a launch does at each place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads so many bytes: 8, 32, 64 or 128.
    Read(u32),
    /// Writes so many bytes: 8 or 128.
    Write(u32),
    /// Writes a word there, and before it a record of 128 bytes behind the one of the place before;
    /// records lie at offset 0.
    Update,
    /// Writes two words there, and before them a record and so many bytes of a key.
    Insert(u32),
}

impl Access {
    fn kernel(self) -> String {
        match self {
            Access::Read(bytes) => format!("read_{bytes}"),
            Access::Write(bytes) => format!("write_{bytes}"),
            Access::Update | Access::Insert(_) => "change".into(),
        }
    }
}

/// Places of some batches, one batch behind the other.
#[derive(Default)]
pub struct Batches {
    places: Vec<u64>,
    ends: Vec<usize>,
    operations: usize,
}

impl Batches {
    /// Puts a batch of so many operations behind the others, which come down to these places.
    pub fn push(&mut self, places: &[u64], operations: usize) {
        self.places.extend_from_slice(places);
        self.ends.push(self.places.len());
        self.operations += operations;
    }

    fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| start..*end)
    }
}

/// A region that the GPU reaches, at the address that it has for the process.
pub struct Registered<'r>(&'r Region);

impl<'r> Registered<'r> {
    /// Pins the region and maps it for the GPU, as the CUDA engine does with its file.
    pub fn new(region: &'r Region) -> Result<Self, Failure> {
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the region is mapped, and stays so for as long as it is registered.
        let answer = unsafe {
            sys::cuMemHostRegister_v2(
                region.base().cast(),
                usize::try_from(region.len()).unwrap(),
                flags,
            )
        };
        check("pinning the region", answer)?;
        Ok(Self(region))
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.0.base() as u64
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        // SAFETY: it was registered from this address. A failure means that the context is gone.
        let _ = unsafe { sys::cuMemHostUnregister(self.0.base().cast()) };
    }
}

/// A GPU with the kernels that measure it.
pub struct Gpu {
    sink: DeviceBuffer<u64>,
    begin: Event,
    end: Event,
    stream: Stream,
    module: Module,
    /// As many blocks as can run at one time.
    blocks: u32,
    pub name: String,
    // Last, for all others live in it.
    _context: Context,
}

impl Gpu {
    /// Opens the device, on which an index must have been opened before: the engine finds the
    /// driver.
    pub fn open(ordinal: u32) -> Result<Self, Failure> {
        let device = Device::get_device(ordinal)?;
        let context = Context::new(device)?;
        let processors = device
            .get_attribute(DeviceAttribute::MultiprocessorCount)?
            .unsigned_abs();
        let threads = device
            .get_attribute(DeviceAttribute::MaxThreadsPerMultiprocessor)?
            .unsigned_abs();
        let options: [ModuleJitOption; 0] = [];
        Ok(Self {
            sink: DeviceBuffer::from_slice(&[0])?,
            begin: Event::new(EventFlags::DEFAULT)?,
            end: Event::new(EventFlags::DEFAULT)?,
            stream: Stream::new(StreamFlags::NON_BLOCKING, None)?,
            module: Module::from_ptx(PTX, &options)?,
            blocks: processors * (threads / THREADS).max(1),
            name: device.name()?,
            _context: context,
        })
    }

    /// Million operations a second, one launch a batch.
    ///
    /// # Safety
    /// All places must be places of the memory at `base`, which the GPU must reach, and so must
    /// the records that a change writes.
    pub unsafe fn rate(
        &self,
        access: Access,
        base: u64,
        batches: &Batches,
    ) -> Result<f64, Failure> {
        if batches.places.is_empty() {
            return Ok(f64::INFINITY);
        }
        let places = DeviceBuffer::from_slice(&batches.places)?;
        let places = places.as_device_ptr().as_raw();
        let function = self.module.get_function(access.kernel())?;
        let launch = |range: std::ops::Range<usize>| {
            let at = places + range.start as u64 * 8;
            let count = u32::try_from(range.len())?;
            // SAFETY: as the caller says; the places are there until the stream is waited for.
            unsafe { self.launch_places(&function, access, base, at, count) }
        };
        // The copy has been issued on a stream that ours does not wait for.
        CurrentContext::synchronize()?;
        // Loading the kernel is not part of it.
        if let Some(first) = batches.ranges().next() {
            launch(first)?;
        }
        let took = self.timed(|| batches.ranges().try_for_each(&launch))?;
        Ok(batches.operations as f64 / took.as_secs_f64() / 1e6)
    }

    /// # Safety
    /// As [`rate`](Self::rate).
    unsafe fn launch_places(
        &self,
        function: &Function,
        access: Access,
        mut base: u64,
        mut places: u64,
        mut count: u32,
    ) -> Result<(), Failure> {
        if count == 0 {
            return Ok(());
        }
        let (bytes, mut words, mut key_bytes) = match access {
            Access::Read(bytes) | Access::Write(bytes) => (bytes, 0, 0),
            Access::Update => (128, 1, 0),
            Access::Insert(key_bytes) => (128, 2, key_bytes),
        };
        let lanes = u64::from(bytes / 16).max(1);
        let blocks = (u64::from(count) * lanes).div_ceil(THREADS.into());
        let blocks = u32::try_from(blocks).map_or(self.blocks, |blocks| blocks.min(self.blocks));
        let mut records = 0_u64;
        let mut sink = self.sink.as_device_ptr().as_raw();
        // A sum that what is there does not have: it holds offsets and small numbers.
        let mut never = u32::MAX;
        let mut arguments = vec![argument(&mut base)];
        if words > 0 {
            arguments.push(argument(&mut records));
        }
        arguments.extend([argument(&mut places), argument(&mut count)]);
        match access {
            Access::Read(_) => arguments.extend([argument(&mut never), argument(&mut sink)]),
            Access::Write(_) => {}
            Access::Update | Access::Insert(_) => {
                arguments.extend([argument(&mut words), argument(&mut key_bytes)]);
            }
        }
        // SAFETY: these are the kernel's parameters; the rest is as the caller says.
        unsafe {
            self.stream
                .launch(function, blocks, THREADS, 0, &arguments)?
        };
        Ok(())
    }

    /// Nanoseconds of a step of a kernel of one thread that does so many.
    ///
    /// # Safety
    /// `arguments` must be those of the kernel, and their addresses valid for it.
    unsafe fn steps(
        &self,
        kernel: &str,
        steps: u32,
        arguments: &[*mut c_void],
    ) -> Result<f64, Failure> {
        let function = self.module.get_function(kernel)?;
        // SAFETY: as the caller says.
        let launch = || unsafe { Ok(self.stream.launch(&function, 1, 1, 0, arguments)?) };
        launch()?;
        let took = self.timed(launch)?;
        Ok(took.as_secs_f64() * 1e9 / f64::from(steps))
    }

    /// Nanoseconds of a store that is everywhere when the next one goes out.
    ///
    /// # Safety
    /// `base` must be 128 KiB that the GPU may write.
    pub unsafe fn store_and_fence(&self, mut base: u64) -> Result<f64, Failure> {
        let mut count = 1_u32 << 14;
        let steps = count;
        let arguments = [argument(&mut base), argument(&mut count)];
        // SAFETY: as the caller says.
        unsafe { self.steps("store_and_fence", steps, &arguments) }
    }

    /// Nanoseconds of a read whose address the read before it gave.
    ///
    /// # Safety
    /// At `base`, a chain of offsets must begin at `place`.
    pub unsafe fn chase(&self, mut base: u64, mut place: u64) -> Result<f64, Failure> {
        let mut hops = 1_u32 << 14;
        let mut end = self.sink.as_device_ptr().as_raw();
        let steps = hops;
        let arguments = [
            argument(&mut base),
            argument(&mut place),
            argument(&mut hops),
            argument(&mut end),
        ];
        // SAFETY: as the caller says.
        unsafe { self.steps("chase", steps, &arguments) }
    }

    /// Microseconds of a launch: waited for, and one of many issued back to back.
    pub fn launch(&self) -> Result<(f64, f64), Failure> {
        const LAUNCHES: u32 = 1000;
        let function = self.module.get_function("nothing")?;
        // SAFETY: the kernel takes nothing and does nothing.
        let launch = || unsafe { self.stream.launch(&function, 1, 32, 0, &[]) };
        launch()?;
        self.stream.synchronize()?;
        let began = Instant::now();
        for _ in 0..LAUNCHES {
            launch()?;
            self.stream.synchronize()?;
        }
        let waited_for = began.elapsed();
        let back_to_back = self.timed(|| (0..LAUNCHES).try_for_each(|_| Ok(launch()?)))?;
        let each = |took: Duration| took.as_secs_f64() * 1e6 / f64::from(LAUNCHES);
        Ok((each(waited_for), each(back_to_back)))
    }

    /// Bytes a second that a kernel reads and writes when it copies in device memory.
    ///
    /// # Safety
    /// Both addresses must be `len` bytes of device memory.
    pub unsafe fn copy_on_device(
        &self,
        mut to: u64,
        mut from: u64,
        len: u64,
    ) -> Result<f64, Failure> {
        let function = self.module.get_function("copy")?;
        let mut count = len / 16;
        let arguments = [argument(&mut to), argument(&mut from), argument(&mut count)];
        let launch = || {
            // SAFETY: as the caller says.
            unsafe {
                self.stream
                    .launch(&function, self.blocks, THREADS, 0, &arguments)?
            };
            Ok(())
        };
        launch()?;
        let took = self.timed(launch)?;
        Ok(2.0 * len as f64 / took.as_secs_f64())
    }

    /// Bytes a second of a copy from the host's memory to the device's, and back.
    ///
    /// # Safety
    /// `device` must be `len` bytes of device memory, and `host` as many that the GPU reaches.
    pub unsafe fn copy_over_bus(
        &self,
        device: u64,
        host: u64,
        len: u64,
    ) -> Result<(f64, f64), Failure> {
        let (len, stream) = (usize::try_from(len).unwrap(), self.stream.as_inner());
        // SAFETY: as the caller says.
        let there = self.timed(|| unsafe {
            let answer = sys::cuMemcpyHtoDAsync_v2(device, host as *const c_void, len, stream);
            check("copying to the device", answer)
        })?;
        // SAFETY: as the caller says.
        let back = self.timed(|| unsafe {
            let answer = sys::cuMemcpyDtoHAsync_v2(host as *mut c_void, device, len, stream);
            check("copying from the device", answer)
        })?;
        Ok((
            len as f64 / there.as_secs_f64(),
            len as f64 / back.as_secs_f64(),
        ))
    }

    /// How long the device takes for what `work` puts on the stream.
    fn timed(&self, work: impl FnOnce() -> Result<(), Failure>) -> Result<Duration, Failure> {
        self.stream.synchronize()?;
        self.begin.record(&self.stream)?;
        work()?;
        self.end.record(&self.stream)?;
        self.end.synchronize()?;
        Ok(self.end.elapsed(&self.begin)?)
    }
}

fn argument<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

fn check(what: &str, answer: sys::CUresult) -> Result<(), Failure> {
    match answer {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        answer => Err(format!("{what}: {answer:?}").into()),
    }
}
