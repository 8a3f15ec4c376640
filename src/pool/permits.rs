//! How many may do something at a time: others wait.

#[cfg(test)]
mod tests;

use parking_lot::{Condvar, Mutex};

/// See the [module](self).
pub struct Permits {
    free: Mutex<usize>,
    freed: Condvar,
}

/// One of them, which is given back when this is dropped.
#[must_use = "it is given back when this is dropped"]
pub struct Permit<'p>(&'p Permits);

impl Permits {
    /// For so many at a time.
    pub fn new(count: usize) -> Self {
        Self {
            free: Mutex::new(count),
            freed: Condvar::new(),
        }
    }

    /// One of them, once it is free. Whoever has one must not wait for another one: a thread of a pool, which may execute
    /// other tasks while it waits for some, goes [elsewhere](crate::run_off_pool) before.
    pub fn take(&self) -> Permit<'_> {
        let mut free = self.free.lock();
        self.freed.wait_while(&mut free, |free| *free == 0);
        *free -= 1;
        Permit(self)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.freed.notify_one();
    }
}
