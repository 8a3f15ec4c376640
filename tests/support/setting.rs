//! Variables of the environment that choose what a test does.

use std::env;
use std::str::FromStr;

/// What variable `name` is set to.
///
/// # Panics
/// If it is set to what no `T` is.
pub fn setting<T: FromStr>(name: &str) -> Option<T> {
    let value = env::var(name).ok()?;
    let parsed = value.parse().ok();
    assert!(parsed.is_some(), "{name}={value}");
    parsed
}
