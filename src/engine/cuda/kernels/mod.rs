//! The kernels and how they are launched: [`declarations`] says what each is told, [`Kernels::launch`] puts
//! any of them on a stream, and [`batch`] has those that come one after another.

mod batch;
pub mod declarations;

use std::collections::HashMap;
use std::sync::Arc;

use bytemuck::Zeroable;
use parking_lot::Mutex;

use crate::Result;
use crate::gpu::abi::{BatchView, DEEPEST};
use crate::gpu::device::Device;
use crate::gpu::kernel::{Arguments, Kernel};
use crate::gpu::launch::{BLOCKS, THREADS};
use crate::gpu::launch::{Function, Launch};
use crate::gpu::module::Module;
use crate::gpu::write_trace::{LogView, TraceBuffer, WriteTrace};
use crate::pm::Mapping;
use crate::width::u32_of;
use declarations::SET_WRITE_TRACE;

/// Lanes of a warp.
pub const WARP: u32 = 32;

/// Least positions of a tile of a lookup, whose answers are whole bytes.
const TILE_MIN: u32 = 8;

/// Least positions of a tile of a change: one for each group of a warp.
const CHANGED_TILE_MIN: u32 = 4;

/// How much of the device a launch takes.
#[derive(Debug, Clone, Copy)]
pub enum Grid {
    /// So many warps, as far as the device runs them at a time.
    Warps(u64),
    /// So many threads, likewise.
    Threads(u32),
    /// Just so many blocks.
    Blocks(u32),
    /// As many blocks as the device runs at a time.
    Device,
}

impl Grid {
    /// A warp for each tile of a batch.
    pub fn tiles(batch: &BatchView) -> Self {
        Self::Warps(batch.len.div_ceil(batch.tile).into())
    }
}

/// Verbs that write nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// Copies values.
    Get,
    /// Copies nothing.
    Contains,
    /// Says where the values are: the offset of each in the file, or 0, in place of the value.
    Locate,
}

/// The loaded kernels for one size of keys.
pub struct Kernels {
    module: Module,
    /// The kernels that were launched before, by their names.
    found: Mutex<HashMap<(&'static str, &'static str), Function>>,
    /// Where they note what they store, in tests.
    log: Option<TraceBuffer>,
    wide: bool,
    key_size: u32,
    blocks: u32,
}

impl Kernels {
    /// Loads the kernels into the current context.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if the driver is too old for them.
    pub fn load(
        device: &Device,
        medium: &Mapping,
        key_size: u64,
        watch: Option<&Arc<dyn WriteTrace>>,
    ) -> Result<Self> {
        let ptx = watch.map_or(gphash_kernels::INDEX, |watch| watch.kernels());
        let module = Module::load(ptx)?;
        let log = watch
            .map(|watch| TraceBuffer::new(watch, medium.base() as u64, medium.reserved()))
            .transpose()?;
        Ok(Self {
            module,
            found: Mutex::default(),
            log,
            wide: key_size > 8,
            key_size: u32_of(key_size),
            blocks: watch
                .map_or(u32::MAX, |watch| watch.blocks())
                .min(device.processors() * BLOCKS),
        })
    }

    /// How many positions a warp should take at a time in a batch of `len`, at least a byte of
    /// answers. Few in a small batch, so that all of the device works on it. Up to a warp's width
    /// in a large one, so that its operations share fences and atomics.
    pub fn tile(&self, len: u32) -> u32 {
        self.tile_from(TILE_MIN, len)
    }

    /// The same of a batch that changes the table.
    pub fn changed_tile(&self, len: u32) -> u32 {
        self.tile_from(CHANGED_TILE_MIN, len)
    }

    fn tile_from(&self, least: u32, len: u32) -> u32 {
        let warps = self.blocks * (THREADS / WARP);
        let share = (len / warps).clamp(least, WARP);
        1 << share.ilog2()
    }

    /// How many tiles of a change should share their fences: as many as leave work for all warps.
    pub fn depth(&self, len: u32) -> u32 {
        let warps = self.blocks * (THREADS / WARP);
        (len / (warps * self.changed_tile(len))).clamp(1, DEEPEST)
    }

    /// Puts a kernel on a stream.
    ///
    /// # Safety
    /// All addresses in the arguments must be valid for the sizes that the arguments state until the stream
    /// has come past. Nothing else may change meanwhile what the kernel changes.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub unsafe fn launch<A: Arguments>(
        &self,
        mut on: impl Launch,
        kernel: Kernel<A>,
        grid: Grid,
        arguments: A,
    ) -> Result<()> {
        let blocks = self.blocks(grid);
        let Some(log) = &self.log else {
            // SAFETY: the caller keeps the addresses valid, and others away.
            return unsafe { self.put(&mut on, &kernel, blocks, &arguments) };
        };
        // What is noted is noted launch by launch.
        let mut stream = on.stream();
        if !kernel.writes_file {
            // SAFETY: as above. Those collected before go later, and no kernel that only reads the file
            // waits for them.
            return unsafe { self.put(&mut stream, &kernel, blocks, &arguments) };
        }
        let (view, none) = (log.begin(stream, kernel.name)?, LogView::zeroed());
        // SAFETY: as above. The trace's memory outlives the launches, as `end` waits for them.
        unsafe {
            self.put(&mut stream, &SET_WRITE_TRACE, 1, &(view,))?;
            self.put(&mut stream, &kernel, blocks, &arguments)?;
            self.put(&mut stream, &SET_WRITE_TRACE, 1, &(none,))?;
        }
        Ok(log.end(stream, kernel.name)?)
    }

    /// Puts a kernel on a stream, whatever it writes.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    unsafe fn put<A: Arguments>(
        &self,
        on: &mut impl Launch,
        kernel: &Kernel<A>,
        blocks: u32,
        arguments: &A,
    ) -> Result<()> {
        let suffix = match (kernel.has_key_sizes, self.wide) {
            (false, _) => "",
            (true, false) => "_word",
            (true, true) => "_wide",
        };
        let function = self.find(kernel.name, suffix)?;
        // SAFETY: the arguments are of the types that the kernel is declared with; the rest is as the caller
        // says.
        unsafe { on.put(function, blocks, arguments.bytes().as_ref())? };
        Ok(())
    }

    fn blocks(&self, grid: Grid) -> u32 {
        let warps = match grid {
            Grid::Blocks(blocks) => return blocks,
            Grid::Device => return self.blocks,
            Grid::Threads(threads) => threads.div_ceil(WARP).into(),
            Grid::Warps(warps) => warps,
        };
        let blocks = warps.div_ceil(u64::from(THREADS / WARP));
        u32::try_from(blocks).map_or(self.blocks, |blocks| blocks.clamp(1, self.blocks))
    }

    fn find(&self, name: &'static str, suffix: &'static str) -> Result<Function> {
        let mut found = self.found.lock();
        if let Some(function) = found.get(&(name, suffix)) {
            return Ok(*function);
        }
        let function = self.module.function(&format!("{name}{suffix}"))?;
        found.insert((name, suffix), function);
        Ok(function)
    }
}
