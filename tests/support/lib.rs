//! What several test programs do: they compile C++, and kill processes.

pub mod compiler;
pub mod process;
