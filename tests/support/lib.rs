//! What several test programs do: they read settings, compile C++, and kill processes.

pub mod compiler;
pub mod process;
mod setting;

pub use setting::setting;
