//! Look-ups that are under way on streams of the callers, whose batches lie in device memory.
//!
//! Such a batch is done when its stream has come past it, which the call that issued it does not
//! wait for. What must not happen beside a look-up waits here for all of them.

use std::collections::HashMap;
use std::sync::Arc;

use cust::event::{Event, EventFlags, EventStatus};
use cust::stream::Stream;
use parking_lot::Mutex;

use super::device::failed;
use super::launch::{Graphs, Launches};
use super::order::{Bins, OrderMemory};
use super::view::OrderView;
use crate::Result;

/// Streams that are remembered before those whose look-ups have ended are forgotten.
const REMEMBERED: usize = 64;

/// The streams that look-ups were put on.
#[derive(Default)]
pub struct Readers(Mutex<HashMap<usize, Arc<Mutex<Reader>>>>);

/// One stream: the end of its last look-up, and memory that its look-ups use one after another.
pub struct Reader {
    end: Event,
    order: OrderMemory,
    graphs: Graphs,
}

impl Readers {
    /// What is kept for a stream.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn on(&self, stream: &Stream) -> Result<Arc<Mutex<Reader>>> {
        let mut readers = self.0.lock();
        if readers.len() >= REMEMBERED {
            readers.retain(|_, reader| !reader.lock().is_done());
        }
        if let Some(reader) = readers.get(&(stream.as_inner() as usize)) {
            return Ok(Arc::clone(reader));
        }
        let end = Event::new(EventFlags::DISABLE_TIMING)
            .map_err(|error| failed("making an event", error))?;
        let order = OrderMemory::new()?;
        let reader = Arc::new(Mutex::new(Reader {
            end,
            order,
            graphs: Graphs::default(),
        }));
        readers.insert(stream.as_inner() as usize, Arc::clone(&reader));
        Ok(reader)
    }

    /// Waits until the look-ups that have been issued are done, one stream after another, and keeps
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
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn order(&mut self, stream: &Stream, len: u32, file_len: u64) -> Result<OrderView> {
        let bins = Bins::of(len, file_len);
        if !self.order.fits(len, bins) {
            self.wait();
        }
        self.order.view(stream, len, bins)
    }

    /// Kernels to be put on `stream`, which is the reader's, together.
    pub fn launches<'a>(&'a mut self, stream: &'a Stream) -> Launches<'a> {
        Launches::new(stream, &mut self.graphs)
    }

    /// Notes that what is on `stream` now is to be waited for.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn issued(&mut self, stream: &Stream) -> Result<()> {
        self.end
            .record(stream)
            .map_err(|error| failed("recording an event", error))
    }

    fn is_done(&self) -> bool {
        !matches!(self.end.query(), Ok(EventStatus::NotReady))
    }

    fn wait(&self) {
        // A device that fails here fails its next caller, too, who can say so.
        let _ = self.end.synchronize();
    }
}
