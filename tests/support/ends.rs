use std::sync::atomic::{AtomicBool, Ordering};

/// Tells other threads that it is over when it is dropped, also by a test that fails.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
