//! Loading the bucket cache beside what is measured.

use std::sync::atomic::{AtomicBool, Ordering};

use super::target::Failure;

/// Does `run`, and `reload` again and again beside it on a thread of its own.
pub fn while_reloading<T>(
    reload: impl Fn() -> Result<(), Failure> + Sync,
    run: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reloading = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                reload()?;
                // Without a cache a load is nothing, and must not keep a core from those who work.
                std::thread::yield_now();
            }
            Ok::<(), Failure>(())
        });
        let outcome = run();
        over.store(true, Ordering::Relaxed);
        let reloaded = reloading
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        reloaded.and(outcome)
    })
}
