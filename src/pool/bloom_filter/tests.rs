use super::*;

/// A hash whose bits depend on all bits of a number (MurmurHash3's end).
fn hash(n: u64) -> u64 {
    let mixed = (n ^ n >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 33
}

#[test]
fn filter_finds_every_key_and_few_others() {
    for count in [1, 2, 3, 10, 1000, 30_000] {
        let hashes: Vec<u64> = (0..count).chain(0..count / 2).map(hash).collect();
        let filter = Filter::read(Filter::build(&hashes).bytes()).unwrap();
        assert_eq!(filter.bytes().len(), 32 * blocks_of(hashes.len()));
        assert!((0..count).all(|n| filter.may_have(hash(n))));
        let wrong = (count..count + 100_000).filter(|&n| filter.may_have(hash(n)));
        let wrong = wrong.count();
        assert!(wrong < 1000, "{wrong} with {count} keys");
    }
}

#[test]
fn filter_of_a_wrong_length_is_refused() {
    let filter = Filter::build(&[1, 2, 3]);
    assert!(Filter::read(filter.bytes()).is_ok());
    assert!(Filter::read(&filter.bytes()[1..]).is_err());
    assert!(Filter::read(&[]).is_err());
}
