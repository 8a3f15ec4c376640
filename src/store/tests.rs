//! What the store's own tests share.

use super::StoreOptions;

/// Options of a store. With `GPHASH_TEST_COMPACTION=drawn` a GPU, if there is one, does half of the parts of its
/// compactions.
pub fn options() -> StoreOptions {
    match std::env::var("GPHASH_TEST_COMPACTION") {
        Ok(sides) if sides == "drawn" => StoreOptions::new().gpu_compaction_share(0.5),
        _ => StoreOptions::new(),
    }
}

/// The seed of a random test, which says how to repeat it.
pub fn seed() -> u64 {
    let seed = match std::env::var("GPHASH_TEST_SEED") {
        Ok(seed) => seed.parse().expect("GPHASH_TEST_SEED"),
        Err(_) => rand::random(),
    };
    println!("GPHASH_TEST_SEED={seed}");
    seed
}
