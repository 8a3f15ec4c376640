use super::*;
use crate::Engine;
use crate::engine::version_sorter;

#[test]
fn versions_of_a_key_are_found_in_order() {
    let keys: [&[u8]; 7] = [b"b", b"a", b"", b"b", b"a", b"b", b"c"];
    let is_change = |position| ![4, 6].contains(&position);
    let gpu = version_sorter(Engine::Auto).unwrap();
    for gpu in [None, gpu.as_ref()] {
        let key = |position| keys[position as usize];
        let versions = KeyWrites::sort(7, is_change, key, gpu);
        let before = |position: u32| -> Vec<u32> {
            let found = versions.before(key(position), position);
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
}

#[test]
fn keys_of_one_hash_are_detected() {
    let keys: [&[u8]; 3] = [b"a", b"b", b"a"];
    let key = |position: u32| keys[position as usize];
    let version = |position| KeyWrite { hash: 7, position };
    assert!(tells_apart(&[0, 2].map(version), &key));
    assert!(!tells_apart(&[0, 1, 2].map(version), &key));
}
