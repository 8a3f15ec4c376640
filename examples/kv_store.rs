//! A key-value store: single requests, an atomic batch, a range.
//!
//! `cargo run --release --example kv_store`

use gphash::Result;
use gphash::store::{Store, StoreOptions, WriteBatch};

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory for the example");
    let store = Store::open(dir.path().join("fruit"), &StoreOptions::new())?;

    store.put("apple", "red")?;
    store.put("banana", "yellow")?;
    assert_eq!(store.get(b"apple")?, Some(b"red".to_vec()));

    let mut batch = WriteBatch::new();
    batch.put("cherry", "dark red");
    batch.delete("banana");
    store.write(batch)?;

    for item in store.range("a".."d") {
        let (key, value) = item?;
        println!("{} is {}", key.escape_ascii(), value.escape_ascii());
    }
    assert_eq!(store.scan(b"a".to_vec(), 10).count(), 2);
    store.close()
}
