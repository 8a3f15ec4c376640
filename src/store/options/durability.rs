//! From when on a change outlives a power cut.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::ParseOptionError;

/// From when on a change outlives a power cut. The death of the process alone loses nothing that
/// was answered, whatever this says.
///
/// In the domain `Dax`, where the index is durable at once, the log is too: there each of them is
/// `Always`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When the call returns. Callers who come at the same time share one sync of the log.
    Always,
    /// So much later, and the time of a sync: a thread syncs the log.
    Interval(Duration),
    /// When [`flush`](crate::store::Store::flush) or a checkpoint has returned, or the system has written
    /// it by itself. What survives is all that was done up to some moment, of each
    /// [partition](super::StoreOptions::partitions) its own.
    None,
}

/// Units of a [`Durability::Interval`] in text, the longest first, in nanoseconds.
const INTERVAL_UNITS: [(&str, u64); 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Always => f.write_str("always"),
            Durability::Interval(interval) => {
                let nanoseconds = interval.as_nanos();
                let (unit, length) = INTERVAL_UNITS
                    .into_iter()
                    .find(|&(_, length)| nanoseconds.is_multiple_of(length.into()))
                    .expect("every interval is a number of nanoseconds");
                write!(f, "{}{unit}", nanoseconds / u128::from(length))
            }
            Durability::None => f.write_str("none"),
        }
    }
}

impl FromStr for Durability {
    type Err = ParseOptionError;

    /// `always`, `none`, or an interval: a whole number of `s`, `ms`, `us` or `ns`.
    ///
    /// # Examples
    /// ```
    /// use gphash::store::Durability;
    /// use std::time::Duration;
    ///
    /// let durability: Durability = "250ms".parse()?;
    /// assert_eq!(durability, Durability::Interval(Duration::from_millis(250)));
    /// assert_eq!(durability.to_string(), "250ms");
    /// # Ok::<(), gphash::ParseOptionError>(())
    /// ```
    fn from_str(text: &str) -> std::result::Result<Self, ParseOptionError> {
        let interval = || {
            let digits = text.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
            let (_, length) = INTERVAL_UNITS
                .into_iter()
                .find(|&(unit, _)| unit == &text[digits.len()..])?;
            let nanoseconds = digits.parse::<u64>().ok()?.checked_mul(length)?;
            Some(Durability::Interval(Duration::from_nanos(nanoseconds)))
        };
        match text {
            "always" => Ok(Durability::Always),
            "none" => Ok(Durability::None),
            _ => interval().ok_or_else(|| {
                let expected = "always, none or an interval such as 250ms";
                ParseOptionError::new("durability", text, expected)
            }),
        }
    }
}
