use super::*;

#[test]
fn versions_of_a_key_are_found_in_order() {
    let keys: [&[u8]; 7] = [b"b", b"a", b"", b"b", b"a", b"b", b"c"];
    let key = |position| keys[position as usize];
    let versions = KeyWrites::sort(7, &[0, 1, 2, 3, 5], key, |_| None);
    let before = |position: u32| -> Vec<u32> {
        let found = versions.before(key(position), || position);
        found.map(|version| version.position).collect()
    };
    assert_eq!(before(5), [3, 0]);
    assert_eq!(before(3), [0]);
    assert_eq!(before(4), [1]);
    assert!(before(0).is_empty() && before(2).is_empty() && before(6).is_empty());
    let mut runs = versions.map_keys(|run| Some(run.len()));
    runs.sort_unstable();
    assert_eq!(runs, [1, 1, 3]);
}

#[test]
fn keys_of_one_hash_are_detected() {
    let keys: [&[u8]; 3] = [b"a", b"b", b"a"];
    let key = |position: u32| keys[position as usize];
    let version = |position| KeyWrite { hash: 7, position };
    assert!(tells_apart(&[0, 2].map(version), &key));
    assert!(!tells_apart(&[0, 1, 2].map(version), &key));
}

#[test]
fn buckets_sort_as_a_sort_does() {
    for len in [0, 1, BUCKET_SORT_MIN - 1, BUCKET_SORT_MIN, 1000, 4099] {
        // Spread evenly, all equal, and most of them in the first and the last bucket.
        let spread = |nth: u64| nth.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let hashes: [&dyn Fn(u64) -> u64; 4] =
            [&spread, &|_| u64::MAX, &|nth| spread(nth) >> 40, &|nth| {
                !(spread(nth) >> 50)
            }];
        for (hash, of_key) in hashes.into_iter().flat_map(|hash| [(hash, 1), (hash, 2)]) {
            let version = |nth: usize| KeyWrite {
                hash: hash(nth as u64 / of_key),
                position: position(nth),
            };
            let versions: Vec<KeyWrite> = (0..len).map(version).collect();
            let mut expected = versions.clone();
            expected.sort_unstable();
            let (sorted, of_buckets) = sort_in_buckets(versions);
            assert_eq!(sorted, expected);
            assert_eq!(of_buckets, starts(&expected));
        }
    }
}
