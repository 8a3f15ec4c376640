//! An index: create it, change it in batches, close it, open it again.
//!
//! `cargo run --release --example quickstart`

use gphash::{Index, Options, Result};

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory for the example");
    let path = dir.path().join("squares.gph");

    let index = Index::<u64, u64>::create(&path, &Options::new().capacity(1000))?;
    let keys: Vec<u64> = (0..1000).collect();
    let squares: Vec<u64> = keys.iter().map(|key| key * key).collect();
    let inserted = index.insert(&keys, &squares)?;
    println!("{} items inserted", inserted.count_ones(..));
    index.update_one(&3, &10)?;
    index.remove_one(&4)?;
    index.close()?;

    let index = Index::<u64, u64>::open(&path, &Options::new())?;
    println!(
        "reopened: {} items, clean: {}",
        index.len(),
        index.recovery().clean
    );
    let mut values = [0; 3];
    let found = index.get(&[3, 4, 5], &mut values)?;
    for (nth, key) in [3, 4, 5].into_iter().enumerate() {
        match found.contains(nth) {
            true => println!("{key} -> {}", values[nth]),
            false => println!("{key} is absent"),
        }
    }
    assert_eq!((index.get_one(&3)?, index.get_one(&4)?), (Some(10), None));
    index.close()
}
