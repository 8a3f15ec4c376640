//! Lookups that are under way on streams of the callers, whose batches lie in device memory.
//!
//! Such a batch is done when its stream has come past it, which the call that issued it does not
//! wait for. What must not happen beside a lookup waits here for all of them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::thread::ThreadId;

use parking_lot::Mutex;

use super::order::{Bins, OrderMemory};
use crate::gpu::abi::AddressSortView;
use crate::gpu::budget::IndexBudget;
use crate::gpu::error::Result;
use crate::gpu::event::Event;
use crate::gpu::launch::{Graphs, Launches};
use crate::gpu::stream::Stream;

/// Streams that are remembered before those whose lookups have ended are forgotten.
const REMEMBERED_STREAMS_MAX: usize = 64;

/// The streams that lookups were put on.
#[derive(Default)]
pub struct Readers(Mutex<HashMap<StreamName, Arc<Mutex<Reader>>>>);

/// A handle, and the thread whose stream it is if each thread has one of that handle.
type StreamName = (usize, Option<ThreadId>);

/// `CU_STREAM_PER_THREAD`.
const STREAM_OF_THE_THREAD: usize = 2;

thread_local! {
    static ALIVE: Arc<()> = Arc::default();
}

fn name(stream: &Stream) -> StreamName {
    let handle = stream.handle() as usize;
    let is_of_thread = handle == STREAM_OF_THE_THREAD;
    (handle, is_of_thread.then(|| std::thread::current().id()))
}

/// One stream: the end of its last lookup, and memory that its lookups use one after another.
pub struct Reader {
    end: Event,
    order: OrderMemory,
    /// Without memory for that, they go in the order given.
    is_bounded: bool,
    graphs: Graphs,
    /// Of a stream that each thread has: what goes with the thread.
    thread: Option<Weak<()>>,
}

impl Readers {
    /// What is kept for a stream.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error).
    pub fn on(&self, stream: &Stream, budget: &IndexBudget) -> Result<Arc<Mutex<Reader>>> {
        let mut readers = self.0.lock();
        let name = name(stream);
        if let Some(reader) = readers.get(&name) {
            return Ok(Arc::clone(reader));
        }
        let are_many = readers.len() >= REMEMBERED_STREAMS_MAX;
        readers.retain(|_, reader| {
            // One that was handed out is about to be put lookups on, and is not done.
            Arc::strong_count(reader) > 1 || {
                let reader = reader.lock();
                !(are_many || reader.is_orphaned()) || !reader.is_done()
            }
        });
        let end = Event::new()?;
        let order = OrderMemory::new(&budget.copies);
        let reader = Arc::new(Mutex::new(Reader {
            end,
            order,
            is_bounded: budget.is_bounded(),
            graphs: Graphs::default(),
            thread: name.1.map(|_| ALIVE.with(Arc::downgrade)),
        }));
        readers.insert(name, Arc::clone(&reader));
        Ok(reader)
    }

    /// Waits until the lookups that have been issued are done, one stream after another, and keeps
    /// new ones away only from the stream at hand.
    pub fn wait(&self) {
        let readers: Vec<_> = {
            let readers = self.0.lock();
            readers.values().map(Arc::clone).collect()
        };
        for reader in readers {
            reader.lock().wait();
        }
    }
}

impl Reader {
    /// Memory for putting a batch of `len` in order, in a file of `file_len` bytes.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error).
    pub fn order(&mut self, stream: &Stream, len: u32, file_len: u64) -> Result<AddressSortView> {
        let bins = Bins::of(len, file_len);
        if !self.order.fits(len, bins) {
            self.wait();
        }
        match self.order.view(stream, len, bins) {
            Err(_) if self.is_bounded => Ok(AddressSortView::default()),
            order => order,
        }
    }

    /// Kernels to be put on `stream`, which is the reader's, together.
    pub fn launches<'a>(&'a mut self, stream: &'a Stream) -> Launches<'a> {
        Launches::new(stream, &mut self.graphs)
    }

    /// Notes that what is on `stream` now is to be waited for.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error).
    pub fn issued(&mut self, stream: &Stream) -> Result<()> {
        self.end.record(stream)
    }

    /// Whether the thread is gone whose stream it is. Each has memory of the device.
    fn is_orphaned(&self) -> bool {
        let thread = self.thread.as_ref();
        thread.is_some_and(|thread| thread.strong_count() == 0)
    }

    fn is_done(&self) -> bool {
        self.end.is_done()
    }

    fn wait(&self) {
        // A device that fails here fails its next caller, too, who can say so.
        let _ = self.end.wait();
    }
}

#[cfg(test)]
mod tests;
