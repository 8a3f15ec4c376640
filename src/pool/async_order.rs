//! The order of a thread's asynchronous requests. Those of several partitions wait in a queue of their own: what the
//! thread asks one of these partitions for next comes behind them, in the same queue, and so do changes that it makes
//! there by verbs that wait.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// How many requests of a thread are under way in each partition, in the queue of several.
type Counts = Arc<[AtomicUsize]>;

thread_local! {
    /// Those of this thread, by the stores' names.
    static COUNTS: RefCell<Vec<(Weak<()>, Counts)>> = const { RefCell::new(Vec::new()) };
}

/// Of one store, with requests of threads that call it.
pub struct AsyncOrder {
    /// Says which store it is.
    name: Arc<()>,
    partitions: usize,
}

/// A request that is under way until this is dropped.
pub struct Outstanding {
    counts: Counts,
    numbers: Vec<usize>,
}

impl AsyncOrder {
    /// That of a store of so many partitions.
    pub fn new(partitions: usize) -> Self {
        Self {
            name: Arc::default(),
            partitions,
        }
    }

    /// Notes a request of this thread for these partitions.
    pub fn begin(&self, numbers: Vec<usize>) -> Outstanding {
        let new = || (0..self.partitions).map(|_| AtomicUsize::new(0)).collect();
        let of_thread = COUNTS.try_with(|all| {
            let mut all = all.borrow_mut();
            all.retain(|(name, _)| name.strong_count() > 0);
            if let Some((_, counts)) = all.iter().find(|(name, _)| self.is_named(name)) {
                return Arc::clone(counts);
            }
            let counts: Counts = new();
            all.push((Arc::downgrade(&self.name), Arc::clone(&counts)));
            counts
        });
        // Of a thread whose data is being dropped all requests go to that queue.
        let counts = of_thread.unwrap_or_else(|_| new());
        for &number in &numbers {
            counts[number].fetch_add(1, Ordering::Relaxed);
        }
        Outstanding { counts, numbers }
    }

    /// Whether requests of this thread for the partition of this number are under way.
    pub fn has_outstanding(&self, number: usize) -> bool {
        let is_outstanding = |(name, counts): &(Weak<()>, Counts)| {
            self.is_named(name) && counts[number].load(Ordering::Acquire) > 0
        };
        let outstanding = COUNTS.try_with(|all| all.borrow().iter().any(is_outstanding));
        // A thread that ends knows no longer.
        outstanding.unwrap_or(true)
    }

    fn is_named(&self, name: &Weak<()>) -> bool {
        std::ptr::eq(name.as_ptr(), Arc::as_ptr(&self.name))
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        for &number in &self.numbers {
            self.counts[number].fetch_sub(1, Ordering::Release);
        }
    }
}
