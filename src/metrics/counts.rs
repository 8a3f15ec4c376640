//! What the operations of a table count.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// Threads share a cell only if they are more. The stacks of a model are small.
const CELLS: usize = if cfg!(loom) { 1 } else { 16 };

/// Counts of operations and of PM touches. Each thread adds to a cell of its own: threads with many lookups
/// would wait for each other's cache line. Statistics order nothing, so models need not see them.
#[derive(Debug, Default)]
pub struct Counts {
    cells: [CachePadded<Cell>; CELLS],
}

#[derive(Debug, Default)]
struct Cell {
    operations: AtomicU64,
    touches: AtomicU64,
}

impl Counts {
    /// Adds what the thread of this number has done.
    #[inline]
    pub fn add(&self, thread: usize, operations: u64, touches: u64) {
        let cell = &*self.cells[thread % CELLS];
        cell.operations.fetch_add(operations, Ordering::Relaxed);
        cell.touches.fetch_add(touches, Ordering::Relaxed);
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.sum(|cell| &cell.operations)
    }

    /// PM touches so far.
    pub fn touches(&self) -> u64 {
        self.sum(|cell| &cell.touches)
    }

    fn sum(&self, of: impl Fn(&Cell) -> &AtomicU64) -> u64 {
        let counts = self.cells.iter();
        let counts = counts.map(|cell| of(cell).load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }
}
