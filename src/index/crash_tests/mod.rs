//! Crash states: what memory may hold after a crash at any store and fence is opened by the real
//! recovery and compared with what had been acknowledged.
//!
//! [`scripted`] and [`random`] run one thread, [`threads`] several, [`checkpoints`] one on an ordinary
//! file; recoveries are crashed and recovered themselves. [`superblocks`] tears and damages superblocks; [`metadata`]
//! stops changes of the metadata block.
//!
//! `GPHASH_TEST_SEED` repeats a run, `GPHASH_CRASH_IMAGES` says how many images it checks.

mod check;
mod checkpoints;
mod explorer;
mod forgotten;
mod history;
mod kind;
mod metadata;
mod operation;
mod random;
mod scripted;
mod superblocks;
mod threads;

use kind::Kind;
