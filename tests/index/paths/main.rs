//! What becomes of files whose path changes, whose process dies while it makes or saves them, or forks,
//! and of a process that has a thousand of them open.
//!
//! The test binary runs itself as the process that dies.

mod checkpoints;
mod child;
mod creation;
mod fork;
mod open_files;
mod stores;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gphash::{Domain, Engine, Index, Options};

/// A forked child holds, until it ends, the lock of any file that another test has open.
static FORKS: RwLock<()> = RwLock::new(());

/// Lets no test fork.
fn beside_no_fork() -> RwLockReadGuard<'static, ()> {
    FORKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Lets the caller fork.
fn alone() -> RwLockWriteGuard<'static, ()> {
    FORKS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Large enough that a mixture is seen.
type Value = [u64; 16];
type Table = Index<u64, Value>;

fn options(domain: Domain) -> Options {
    Options::new()
        .engine(Engine::Cpu)
        .domain(domain)
        .capacity(2000)
}

fn value(key: u64, version: u64) -> Value {
    [key ^ version << 32; 16]
}
