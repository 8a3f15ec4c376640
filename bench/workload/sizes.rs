//! Sizes of keys and values that a command takes.

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Sizes of keys, in bytes, that the benches know.
pub const KEY_SIZES: [&str; 5] = ["8", "16", "32", "64", "128"];

/// A run is compiled for each size, so only these can be chosen.
pub fn sizes<const N: usize>(sizes: [&'static str; N]) -> impl TypedValueParser<Value = usize> {
    PossibleValuesParser::new(sizes).try_map(|size| size.parse())
}
