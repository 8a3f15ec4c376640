//! Memory and time that an attack may cost.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// The system's allocator, and how much of it is in use.
pub struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(address, layout) }
    }
}

/// What an attack costs is measured of the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// No attack here is worth so many seconds, even on a machine that has others to do.
const FOR_EVER: Duration = Duration::from_secs(120);

/// Memory that opening any file takes: places for threads and extents, buffers of a few pages.
const BASE: usize = 16 << 20;

/// Runs `attack`, which must end, and may have `most` bytes in use beside what any file needs.
pub fn bounded<T: Send + 'static>(
    name: &str,
    most: u64,
    attack: impl FnOnce() -> T + Send + 'static,
) -> T {
    let _alone = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|poison| poison.into_inner());
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let (answer, answered) = mpsc::channel();
    let running = thread::spawn(move || {
        let result = attack();
        let _ = answer.send(());
        result
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = answered.recv_timeout(FOR_EVER) {
        eprintln!("{name}: it does not end");
        std::process::abort();
    }
    let result = running.join().unwrap_or_else(|_| panic!("{name}"));
    let used = MOST.load(Ordering::Relaxed).saturating_sub(before);
    let limit = BASE + usize::try_from(most).unwrap();
    assert!(used <= limit, "{name}: {used} bytes of memory, of {limit}");
    result
}
