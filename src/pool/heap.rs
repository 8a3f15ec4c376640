//! Free memory, of the allocator and of the machine.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

/// So many times as long as the last look took, nobody looks again. It is all blocks of the process that are looked
/// through, and who allocates meanwhile waits: with a gigabyte of small ones that takes a fifth of a second.
const REST: u32 = 1000;

/// The same after a short look, for which nobody waits long: threads soon keep megabytes each.
const REST_AFTER_SHORT: u32 = 100;
const SHORT: Duration = Duration::from_millis(5);

/// How soon to ask again beside one who looks.
const LOOKING: Duration = Duration::from_millis(100);

static RELEASES: Pace = Pace::new();

/// Gives memory that the allocator keeps for later back to the system, where it can be told to. Many small blocks
/// that are freed together otherwise stay with the process. Does nothing too soon after the last time, whoever
/// asked for that; says then when to ask again.
pub fn release_free() -> Option<Duration> {
    RELEASES.run(|| {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: it touches no block that is in use, and any thread may call it at any time.
        unsafe {
            libc::malloc_trim(0);
        }
    })
}

/// Bytes from which on a buffer is worth huge pages.
const HUGE_BUFFER_BYTES_MIN: usize = 8 << 20;

/// So many zeros. They take memory when they are touched; many of them in huge pages where the system has these.
pub fn zeroed(len: usize) -> Vec<u8> {
    let bytes = vec![0; len];
    #[cfg(target_os = "linux")]
    if len >= HUGE_BUFFER_BYTES_MIN {
        let page = rustix::param::page_size();
        let skipped = bytes.as_ptr().align_offset(page);
        let whole = (len - skipped) / page * page;
        let first = bytes.as_ptr().wrapping_add(skipped);
        // SAFETY: whole pages of the buffer, whose contents the call leaves as they are.
        unsafe {
            libc::madvise(first.cast_mut().cast(), whole, libc::MADV_HUGEPAGE);
        }
    }
    bytes
}

/// Work that takes a small share of the time.
struct Pace {
    next: Mutex<Option<Instant>>,
}

impl Pace {
    const fn new() -> Self {
        Self {
            next: Mutex::new(None),
        }
    }

    /// Does the work unless it is too early; says then when to try again.
    fn run(&self, work: impl FnOnce()) -> Option<Duration> {
        let Some(mut next) = self.next.try_lock() else {
            return Some(LOOKING);
        };
        let begun = Instant::now();
        let early = next.map(|next| next.saturating_duration_since(begun));
        if let Some(wait) = early.filter(|wait| !wait.is_zero()) {
            return Some(wait);
        }
        let used_before = processor_time();
        work();
        let done = Instant::now();
        // Others may have had the processor meanwhile, which says nothing of the heap.
        let took = processor_time().saturating_sub(used_before);
        let rest = if took < SHORT { REST_AFTER_SHORT } else { REST };
        *next = done.checked_add(took.saturating_mul(rest));
        None
    }
}

/// Time of a processor that the calling thread has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Bytes of memory that the machine has for new pages, if it says so.
pub fn free_memory() -> Option<u64> {
    let known = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = known
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep_busy(time: Duration) {
        let begun = processor_time();
        while processor_time() - begun < time {}
    }

    #[test]
    fn time_of_others_is_not_counted() {
        let pace = Pace::new();
        assert_eq!(pace.run(|| std::thread::sleep(SHORT)), None);
        let wait = pace.run(|| ());
        assert!(
            wait.unwrap_or_default() < SHORT * REST_AFTER_SHORT,
            "{wait:?}"
        );
    }

    #[test]
    fn work_is_not_repeated_soon_and_long_work_later() {
        for (took, rest) in [(1, REST_AFTER_SHORT), (10, REST)] {
            let pace = Pace::new();
            let took = Duration::from_millis(took);
            let begun = Instant::now();
            assert_eq!(pace.run(|| keep_busy(took)), None);
            let wait = pace.run(|| ());
            // Nothing is left to wait for where another thread has made this one late enough.
            let passed = wait.unwrap_or_default() + begun.elapsed();
            assert!(passed > took * rest, "{wait:?} of {passed:?}");
        }
    }

    #[test]
    fn work_is_repeated_after_its_rest_and_not_beside_itself() {
        let pace = Pace::new();
        let beside = || pace.run(|| unreachable!("another one is at it"));
        assert_eq!(pace.run(|| assert_eq!(beside(), Some(LOOKING))), None);
        let mut repeated = false;
        while let Some(wait) = pace.run(|| repeated = true) {
            std::thread::sleep(wait);
        }
        assert!(repeated);
    }
}
