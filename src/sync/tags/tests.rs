use super::*;

#[test]
fn tag_match_finds_bytes_by_value() {
    let word = AtomicU64::new(0);
    let tags = TagWord::new(&word);
    assert_eq!(tags.load(), None);
    let known = tags.fill(Tags8::of([None, Some(Tag(7)), None].into_iter()));
    assert_eq!((known.empty(), known.match_mask(Tag(7))), (0b101, 0b10));
    assert_eq!(tags.fill(Tags8::of(std::iter::empty())), known);
    assert!(tags.take(2) && !tags.take(2) && !tags.take(1) && !tags.take(3));
    assert_eq!(tags.load().unwrap().empty(), 1);
    tags.show(2, Tag(7));
    assert_eq!(tags.load().unwrap().match_mask(Tag(7)), 0b110);
    tags.release(1);
    let now = tags.load().unwrap();
    assert_eq!((now.empty(), now.match_mask(Tag(7))), (0b11, 0b100));
}

#[test]
fn tag_match_has_no_false_neighbours() {
    for seed in 0..10_000u64 {
        let word = Tags8(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) & 0x0303_0303_0303_0303);
        for value in 0..4 {
            let expected = (0..8).fold(0, |mask, slot| {
                mask | u32::from(byte(word.0, slot) == value) << slot
            });
            assert_eq!(word.equal(value), expected);
        }
    }
}

#[test]
fn tags_are_never_states_of_a_slot() {
    for low in 0..=255 {
        assert!(Tag::of(KeyHash(low)).0 > TAKEN);
    }
}

#[test]
fn tags_of_an_empty_level_are_all_empty() {
    for slots in [1, 4, 8, 12, 32] {
        let tags = Tags::new(&Shape::new(8, 8, slots, 1, 1).unwrap());
        tags.add_empty(2).unwrap();
        for bucket in 0..4 {
            let empty: u32 = tags
                .level(2)
                .bucket(bucket)
                .words()
                .map(|(_, word)| word.load().unwrap().empty().count_ones())
                .sum();
            assert_eq!(empty, slots);
        }
    }
}
