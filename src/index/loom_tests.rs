//! Every interleaving of a few operations, under loom:
//! `RUSTFLAGS="--cfg loom" cargo test --release --lib loom`.
//!
//! What runs is the table itself, and the CPU engine on it; only what it is made of is loom's.

mod changes;
mod checkpoints;
mod growth;
mod medium;
mod model;
mod records;
