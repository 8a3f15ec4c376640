//! Keys that were made to have one hash, by somebody who knows the seed of the table.

use rand::RngExt;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::*;

/// Bytes 24 to 56 of XXH3's default secret.
const SECRET: [u64; 4] = [
    0x1f67_b3b7_a4a4_4072,
    0x78e5_c0cc_4ee6_79cb,
    0x2172_ffcc_7dd0_5a82,
    0x8e24_43f7_7446_08b8,
];

/// Three keys of 16 bytes with one hash. XXH3 makes of two words a and b, which are the halves of the key beside secrets, what
/// ends with 16 + a's bytes reversed + b + the folded product of a and b. For a of 0, 1 and 2 that is 16 + b, 16 + 2^56 + 2 b
/// and 16 + 2^57 + 3 b, while b is small.
fn colliding(seed: u64, nth: u64) -> [[u8; 16]; 3] {
    let flips = [
        (SECRET[0] ^ SECRET[1]).wrapping_add(seed),
        (SECRET[2] ^ SECRET[3]).wrapping_sub(seed),
    ];
    let third = 2 * nth;
    let second = (3 * third + (1 << 57) - (1 << 56)) / 2;
    let first = (1 << 56) + 2 * second;
    let key = |(a, b): (u64, u64)| {
        let words = [a ^ flips[0], b ^ flips[1]];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.try_into().expect("two words")
    };
    [(0, first), (1, second), (2, third)].map(key)
}

#[test]
fn keys_with_one_hash_are_told_apart() {
    let Some(_alone) = alone() else { return };
    let mut rng = rng();
    for partitions in [1, 2] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let store = open(dir.path(), partitions, None);
        let seed = store.partitions().first().state.tiers.table.hash_seed();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for nth in 0..300 {
            let three = colliding(seed, nth);
            let hashes = three.map(|key| xxh3_64_with_seed(&key, seed));
            assert_eq!(hashes, [hashes[0]; 3], "XXH3 has another secret");
            keys.extend(three.map(Vec::from));
        }
        let mut model = Model::new();
        for _ in 0..30 {
            for _ in 0..60 {
                let key = keys[rng.random_range(0..keys.len())].clone();
                if rng.random_range(0..3) == 0 {
                    store.delete(key.clone()).unwrap();
                    model.remove(&key);
                } else {
                    let value = vec![rng.random(); rng.random_range(0..120)];
                    store.put(key.clone(), value.clone()).unwrap();
                    model.insert(key, value);
                }
            }
            expect(&store.get_columns(&columns(&keys)).unwrap(), &keys, &model);
            let asked: Vec<Vec<u8>> = (0..200)
                .map(|_| keys[rng.random_range(0..keys.len())].clone())
                .collect();
            mixed(&store, &mut model, &asked, &mut rng);
        }
        assert!(store.stats().gpu_located > 0);
    }
}
