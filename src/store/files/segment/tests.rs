use super::*;
use crate::index::fault_tests::faults::Failing;
use crate::pm::Call;

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

/// Where the file system cannot make room, the C library writes zeros there, which may come behind what others have
/// written.
#[test]
fn room_beside_others_is_made_without_writes() {
    let parent = tempfile::tempdir().unwrap();
    let faults = Failing::only(|call, _| call == Call::Allocate, libc::EOPNOTSUPP);
    let dir = Dir::at(parent.path().to_path_buf(), Some(faults.clone()));
    let segment = Segment::begin(&dir, 1, 1, None).unwrap();
    faults.cure(false);
    let before = segment.len().unwrap();
    assert_eq!(segment.make_room_beside(4096, 5000, 4096), 4096);
    assert_eq!(segment.len().unwrap(), before);
    // Whoever writes there himself has no need of that.
    assert_eq!(segment.make_room(4096, 5000, 4096, 4096).unwrap(), 8192);
    assert_eq!(segment.len().unwrap(), 8192);
    faults.cure(true);
    assert_eq!(segment.make_room_beside(8192, 8192, 4096), 8192);
    assert_eq!(segment.make_room_beside(8192, 9000, 4096), 12288);
    assert_eq!(segment.len().unwrap(), 12288);
}
