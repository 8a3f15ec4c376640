//! gphash
mod error;
pub mod layout;
mod options;
pub mod pm;
pub use error::{Error, Result};
pub use options::{Domain, Engine, Options};
/// stub
pub struct Index;
/// stub
pub struct Stats;
