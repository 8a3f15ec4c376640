use super::*;

#[test]
fn each_partition_gets_its_share_of_keys() {
    let route = Route::new([3, 4], 7, None);
    let mut counts = [0u32; 7];
    (0..70_000u32).for_each(|key| counts[route.number_of(&key.to_le_bytes())] += 1);
    assert!(
        counts.iter().all(|count| (9_500..10_500).contains(count)),
        "{counts:?}"
    );
    assert!((0..100u8).all(|key| Route::new([5, 6], 1, None).number_of(&[key]) == 0));
}
