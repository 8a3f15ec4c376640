//! What several test programs do: they read settings, compile C++, kill processes, and end threads.

pub mod compiler;
mod ends;
pub mod process;
mod setting;

pub use ends::Ends;
pub use setting::setting;
