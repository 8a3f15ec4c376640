//! What an asynchronous call does where others wait.

use std::fmt;
use std::str::FromStr;

use crate::ParseOptionError;

/// What an asynchronous call does while 64 MiB of others wait where it would wait, or, if it changes something, while the
/// index is far beyond the [memory budget](super::StoreOptions::memory_budget).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WhenFull {
    /// It waits until there is room, but not in a callback: the thread that calls it is the one that makes room. For the
    /// budget it waits up to a second.
    #[default]
    Wait,
    /// It fails, with [`Error::QueueFull`](crate::Error::QueueFull), and nothing is done. For the budget it does not wait.
    Refuse,
}

impl fmt::Display for WhenFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhenFull::Wait => "wait",
            WhenFull::Refuse => "refuse",
        })
    }
}

impl FromStr for WhenFull {
    type Err = ParseOptionError;

    /// `wait` or `refuse`.
    fn from_str(text: &str) -> std::result::Result<Self, ParseOptionError> {
        match text {
            "wait" => Ok(WhenFull::Wait),
            "refuse" => Ok(WhenFull::Refuse),
            _ => Err(ParseOptionError::new("when_full", text, "wait or refuse")),
        }
    }
}
