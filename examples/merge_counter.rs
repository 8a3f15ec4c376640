//! A merge operator: counters that are added to without being read first.
//!
//! `cargo run --release --example merge_counter`

use std::sync::Arc;

use gphash::Result;
use gphash::store::{MergeOperator, Store, StoreOptions};

/// Adds little-endian numbers of 8 bytes.
struct Add;

fn number(bytes: &[u8]) -> std::result::Result<u64, String> {
    let bytes = bytes
        .try_into()
        .map_err(|_| format!("{} bytes; expected 8", bytes.len()))?;
    Ok(u64::from_le_bytes(bytes))
}

impl MergeOperator for Add {
    fn name(&self) -> &str {
        "add"
    }

    fn merge(
        &self,
        _key: &[u8],
        value: Option<&[u8]>,
        operand: &[u8],
    ) -> std::result::Result<Vec<u8>, String> {
        let sum = value.map_or(Ok(0), number)?.wrapping_add(number(operand)?);
        Ok(sum.to_le_bytes().to_vec())
    }
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory for the example");
    let options = StoreOptions::new().merge_operator(Arc::new(Add));
    let store = Store::open(dir.path().join("visits"), &options)?;
    for visitor in ["ann", "ben", "ann", "ann"] {
        store.merge(visitor, 1u64.to_le_bytes())?;
    }
    for visitor in ["ann", "ben"] {
        let count = store.get(visitor.as_bytes())?.expect("a counter");
        println!("{visitor}: {}", number(&count).expect("what merge gave"));
    }
    assert_eq!(store.get(b"ann")?, Some(3u64.to_le_bytes().to_vec()));
    store.close()
}
