//! What the store's own tests share.

/// The seed of a random test, which says how to repeat it.
pub fn seed() -> u64 {
    let seed = match std::env::var("GPHASH_TEST_SEED") {
        Ok(seed) => seed.parse().expect("GPHASH_TEST_SEED"),
        Err(_) => rand::random(),
    };
    println!("GPHASH_TEST_SEED={seed}");
    seed
}
