//! Crash states: what memory may hold after a crash at any store and fence is opened by the real
//! recovery and compared with what had been acknowledged.
//!
//! [`scripted`] and [`random`] run one thread, [`threads`] several; [`recovery`](explorer) is
//! crashed and recovered itself.
//!
//! `GPHASH_TEST_SEED` repeats a run, `GPHASH_CRASH_IMAGES` says how many images it checks.

mod check;
mod explorer;
mod history;
mod kind;
mod operation;
mod random;
mod scripted;
mod threads;

use kind::Kind;
