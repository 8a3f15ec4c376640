use super::*;

#[test]
fn filter_finds_every_key_and_few_others() {
    for count in [1, 2, 3, 10, 1000, 30_000] {
        let hash = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut hashes: Vec<u64> = (0..count).chain(0..count / 2).map(hash).collect();
        let made = Filter::build(&mut hashes);
        let filter = Filter::read(&made.pieces().concat()).unwrap();
        assert!(filter.len() > 0);
        assert!((0..count).all(|n| filter.may_have(hash(n))));
        let wrong = (count..count + 100_000).filter(|&n| filter.may_have(hash(n)));
        let wrong = wrong.count();
        assert!(wrong < 1000, "{wrong} with {count} keys");
    }
}

#[test]
fn filter_of_a_wrong_length_is_refused() {
    let bytes = Filter::build(&mut (0..100).collect()).pieces().concat();
    assert!(Filter::read(&bytes).is_ok());
    for (at, word) in [
        (8, 0),
        (8, 3),
        (8, 1 << 31),
        (12, 0),
        (16, 0),
        (16, u32::MAX),
    ] {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        assert!(Filter::read(&bytes).is_err(), "{word} at {at}");
    }
    assert!(Filter::read(&bytes[..bytes.len() - 1]).is_err());
    assert!(Filter::read(&bytes[..19]).is_err());
}
