//! The allocator's free memory.

/// Gives memory that the allocator keeps for later back to the system, where it can be told to. Many small blocks
/// that are freed together otherwise stay with the process. It may hold up others who allocate for a while.
pub fn release_free() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it touches no block that is in use, and any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
