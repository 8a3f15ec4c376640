//! What several test programs do: they read settings, compile C++, copy stores, kill processes, end threads, and wait
//! for futures.

mod block_on;
pub mod compiler;
mod copy;
mod ends;
pub mod process;
mod setting;
mod wait;

pub use block_on::block_on;
pub use copy::copy_store;
pub use ends::Ends;
pub use setting::setting;
pub use wait::{must_end, wait_for};
