use super::*;
use crate::width::to_usize;

#[test]
fn fingerprints_are_never_slot_states() {
    for key in 0..1000u64 {
        let wide = [key, !key];
        let hash = KeyHash::of_bytes(bytemuck::bytes_of(&wide), 7).0;
        assert!(hash != EMPTY && hash != BUSY);
    }
}

#[test]
fn bucket_maps_to_half_its_number_one_level_below() {
    let hash = KeyHash::of_word(12345, 99);
    for nth in 0..8 {
        let location = hash.location(nth);
        assert_eq!(KeyHash::bucket(location, 0), 0);
        for level in 1..48 {
            assert!(KeyHash::bucket(location, level) < 1 << level);
            assert_eq!(
                KeyHash::bucket(location, level) >> 1,
                KeyHash::bucket(location, level - 1)
            );
        }
    }
}

#[test]
fn locations_spread_evenly_and_independently() {
    let mut counts = vec![0u32; 64 * 64];
    for key in 0..400_000u64 {
        let hash = KeyHash::of_word(key, 1);
        let pair = KeyHash::bucket(hash.location(0), 6) * 64 + KeyHash::bucket(hash.location(1), 6);
        counts[to_usize(pair)] += 1;
    }
    // 97.7 expected in each cell; six standard deviations are 59.
    assert!(counts.iter().all(|&count| (38..158).contains(&count)));
}

#[test]
fn hash_of_a_word_is_that_of_its_bytes() {
    assert_eq!(
        KeyHash::of_word(5, 3).0,
        xxh3_64_with_seed(&5u64.to_le_bytes(), 3)
    );
}
