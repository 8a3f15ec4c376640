//! What the system lets a process have.

use gphash_layout::width::to_usize;

/// How many files the process may have open at a time.
pub fn open_files_max() -> usize {
    let soft = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    soft.map_or(usize::MAX, to_usize)
}

/// Bytes of addresses that the process may still take, if that is limited (`RLIMIT_AS`).
pub fn addresses_left() -> Option<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current?;
    let sizes = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = sizes.as_deref().and_then(|sizes| sizes.split(' ').next());
    let pages: u64 = pages.and_then(|pages| pages.parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(pages * rustix::param::page_size() as u64))
}
