use super::*;

#[test]
fn segment_with_an_impossible_first_number_is_damaged() {
    let parent = tempfile::tempdir().unwrap();
    let dir = Dir::at(parent.path().to_path_buf(), None);
    for (number, first) in (1..).zip([1, 0, SEQUENCE_LIMIT - 1, SEQUENCE_LIMIT, u64::MAX]) {
        let segment = Segment::begin(&dir, number, first, None).unwrap();
        assert!(Segment::open(&dir, [1, 2], number).is_err(), "{first}");
        segment.write_header([1, 2]).unwrap();
        let opened = Segment::open(&dir, [1, 2], number);
        let is_possible = (1..SEQUENCE_LIMIT).contains(&first);
        assert_eq!(opened.is_ok(), is_possible, "{first}");
        let store = store_of(&dir, number).unwrap();
        assert_eq!(store.is_some(), is_possible, "{first}");
    }
}
