//! Kernels on their way to a stream. Several that follow one another go as one graph, which takes
//! the host less time than a launch for each (docs/performance.md).

use std::ffi::c_void;

use crate::gpu::device::Device;
use crate::gpu::driver;
use crate::gpu::driver::{Handle, KernelNodeParameters, check};
use crate::gpu::error::Result;
pub use crate::gpu::module::Function;
use crate::gpu::stream::Stream;

/// Threads of a block, eight warps.
pub const THREADS: u32 = 256;

/// Most blocks a multiprocessor is given: as many as its registers hold, so that each warp stays
/// for the whole launch.
pub const BLOCKS: u32 = 4;

/// Blocks that work at a time on a device.
#[derive(Debug, Clone, Copy)]
pub struct Blocks(u32);

impl Blocks {
    /// Those of a device.
    pub fn of(device: &Device) -> Self {
        Self(device.processors() * BLOCKS)
    }

    /// Blocks for so many threads with a loop each.
    pub fn for_threads(self, threads: u32) -> u32 {
        threads.div_ceil(THREADS).clamp(1, self.0)
    }
}

/// Where kernels are put.
pub trait Launch {
    /// The stream that runs them.
    fn stream(&self) -> &Stream;

    /// Puts a kernel behind those before it. `arguments` are its parameters' bytes.
    ///
    /// # Safety
    /// The arguments must be of the kernel's types, and every address in them must stay valid, for what the
    /// kernel does there, until the stream has run it. Nothing else may change meanwhile what it changes.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error).
    unsafe fn put(&mut self, function: Function, blocks: u32, arguments: &[&[u8]]) -> Result<()>;
}

impl<L: Launch> Launch for &mut L {
    fn stream(&self) -> &Stream {
        (**self).stream()
    }

    unsafe fn put(&mut self, function: Function, blocks: u32, arguments: &[&[u8]]) -> Result<()> {
        // SAFETY: the same is asked of the caller.
        unsafe { (**self).put(function, blocks, arguments) }
    }
}

impl Launch for &Stream {
    fn stream(&self) -> &Stream {
        self
    }

    unsafe fn put(&mut self, function: Function, blocks: u32, arguments: &[&[u8]]) -> Result<()> {
        let mut addresses: Vec<*mut c_void> = arguments
            .iter()
            .map(|argument| argument.as_ptr().cast_mut().cast())
            .collect();
        // SAFETY: the caller vouches for number and types of the arguments and for the addresses in them.
        // The call copies the arguments, and reads no more of them than the kernel declares.
        let answer = unsafe {
            driver::cuLaunchKernel(
                function.0,
                blocks,
                1,
                1,
                THREADS,
                1,
                1,
                0,
                self.handle(),
                addresses.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        check("launching a kernel (cuLaunchKernel)", answer)
    }
}

/// Kernels that are collected before they go to the stream together.
pub struct Launches<'a> {
    stream: &'a Stream,
    graphs: &'a mut Graphs,
    nodes: Vec<Node>,
    /// The arguments of all of them, each from a word on.
    arguments: Vec<u64>,
}

struct Node {
    function: Function,
    blocks: u32,
    /// Where each of its arguments begins.
    starts: Vec<usize>,
}

impl<'a> Launches<'a> {
    /// None yet. No other stream may be using these graphs.
    pub fn new(stream: &'a Stream, graphs: &'a mut Graphs) -> Self {
        Self {
            stream,
            graphs,
            nodes: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// Puts those that were collected on the stream.
    ///
    /// # Safety
    /// What [`put`](Launch::put) asks for must hold for each of them until the stream has run it.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error).
    pub unsafe fn submit(self) -> Result<()> {
        if self.nodes.is_empty() {
            return Ok(());
        }
        let functions = || self.nodes.iter().map(|node| node.function);
        let known = self.graphs.0.iter().position(|graph| {
            let known = graph.nodes.iter().map(|&(function, _)| function);
            known.eq(functions())
        });
        let graph = match known {
            Some(known) => {
                let graph = &self.graphs.0[known];
                for (node, &(_, handle)) in self.nodes.iter().zip(&graph.nodes) {
                    let mut addresses = node.addresses(&self.arguments);
                    let parameters = node.parameters(&mut addresses);
                    // SAFETY: the node is of this graph, and of the same kernel as `node`. The call copies
                    // the arguments, which whoever put the kernel vouched for.
                    let answer = unsafe {
                        driver::cuGraphExecKernelNodeSetParams(
                            graph.executable,
                            handle,
                            &parameters,
                        )
                    };
                    check("changing a graph (cuGraphExecKernelNodeSetParams)", answer)?;
                }
                graph
            }
            None => {
                // SAFETY: whoever put a kernel vouched for its arguments; `nodes` say where each begins.
                self.graphs
                    .0
                    .push(unsafe { Graph::new(&self.nodes, &self.arguments)? });
                &self.graphs.0[self.graphs.0.len() - 1]
            }
        };
        // SAFETY: the caller keeps the addresses in the arguments valid. The graph is used on one stream
        // alone, so that its launches run one after another.
        let answer = unsafe { driver::cuGraphLaunch(graph.executable, self.stream.handle()) };
        check("launching a graph (cuGraphLaunch)", answer)
    }
}

impl Launch for Launches<'_> {
    fn stream(&self) -> &Stream {
        self.stream
    }

    unsafe fn put(&mut self, function: Function, blocks: u32, arguments: &[&[u8]]) -> Result<()> {
        let mut starts = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let start = self.arguments.len();
            self.arguments
                .resize(start + argument.len().div_ceil(size_of::<u64>()), 0);
            let words = bytemuck::cast_slice_mut(&mut self.arguments[start..]);
            words[..argument.len()].copy_from_slice(argument);
            starts.push(start);
        }
        self.nodes.push(Node {
            function,
            blocks,
            starts,
        });
        Ok(())
    }
}

impl Node {
    fn addresses(&self, arguments: &[u64]) -> Vec<*mut c_void> {
        let address = |&start: &usize| std::ptr::from_ref(&arguments[start]).cast_mut().cast();
        self.starts.iter().map(address).collect()
    }

    fn parameters(&self, addresses: &mut [*mut c_void]) -> KernelNodeParameters {
        KernelNodeParameters {
            function: self.function.0,
            grid: [self.blocks, 1, 1],
            block: [THREADS, 1, 1],
            shared_bytes: 0,
            parameters: addresses.as_mut_ptr(),
            extra: std::ptr::null_mut(),
        }
    }
}

/// The graphs that one stream has been given, to be launched again with other arguments.
#[derive(Default)]
pub struct Graphs(Vec<Graph>);

struct Graph {
    graph: Handle,
    executable: Handle,
    nodes: Vec<(Function, Handle)>,
}

// SAFETY: the driver takes the handles on any thread.
unsafe impl Send for Graph {}

impl Graph {
    /// The kernels of `nodes`, one after another.
    ///
    /// # Safety
    /// The arguments must be of the kernels' types, at the nodes' starts.
    unsafe fn new(nodes: &[Node], arguments: &[u64]) -> Result<Self> {
        let mut made = Self {
            graph: std::ptr::null_mut(),
            executable: std::ptr::null_mut(),
            nodes: Vec::with_capacity(nodes.len()),
        };
        // SAFETY: the driver writes the handle.
        check("making a graph (cuGraphCreate)", unsafe {
            driver::cuGraphCreate(&mut made.graph, 0)
        })?;
        for node in nodes {
            let mut addresses = node.addresses(arguments);
            let parameters = node.parameters(&mut addresses);
            let before: &[_] = match made.nodes.last() {
                Some((_, before)) => &[*before],
                None => &[],
            };
            let mut handle = std::ptr::null_mut();
            // SAFETY: the node before is of this graph. The call copies the arguments, whose number and
            // types the caller vouches for.
            check("adding to a graph (cuGraphAddKernelNode)", unsafe {
                driver::cuGraphAddKernelNode(
                    &mut handle,
                    made.graph,
                    before.as_ptr(),
                    before.len(),
                    &parameters,
                )
            })?;
            made.nodes.push((node.function, handle));
        }
        check(
            "making a graph ready (cuGraphInstantiateWithFlags)",
            // SAFETY: the graph is whole.
            unsafe { driver::cuGraphInstantiateWithFlags(&mut made.executable, made.graph, 0) },
        )?;
        Ok(made)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: a handle that is not null was made here, and is destroyed once. A launch under way keeps
        // what it needs.
        unsafe {
            if !self.executable.is_null() {
                let _ = driver::cuGraphExecDestroy(self.executable);
            }
            if !self.graph.is_null() {
                let _ = driver::cuGraphDestroy(self.graph);
            }
        }
    }
}
