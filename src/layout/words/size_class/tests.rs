use super::*;

#[test]
fn classes_grow_by_words_and_then_by_quarters_of_a_power_of_two() {
    let first: Vec<u64> = (0..5).map(class_size).collect();
    assert_eq!(first, [32, 40, 48, 56, 64]);
    let further: Vec<u64> = (27..34).map(class_size).collect();
    assert_eq!(further, [248, 256, 320, 384, 448, 512, 640]);
    assert_eq!(class_size(116), 1 << 30);
    for class in 1..SIZE_CLASSES {
        let (before, size) = (class_size(class - 1), class_size(class));
        assert!(size > before);
        assert!(size == before + 8 || size * 4 <= before * 5);
        assert_eq!(size % 8, 0);
    }
}

#[test]
fn class_of_a_length_is_the_smallest_that_fits() {
    for class in 0..SIZE_CLASSES {
        let size = class_size(class);
        assert_eq!(class_of(size), Some(class));
        assert_eq!(class_of(size - 1), Some(class));
        let next = (class + 1 < SIZE_CLASSES).then_some(class + 1);
        assert_eq!(class_of(size + 1), next);
    }
    assert_eq!(class_of(0), Some(0));
    assert_eq!(class_of(u64::MAX), None);
}

#[test]
fn record_header_yields_key_and_value() {
    let header = RecordHeader::new(b"key", b"value", 7).unwrap();
    assert!(header.matches(b"key\0\0\0\0\0value"));
    assert!(!header.matches(b"key\0\0\0\0\x01value"));
    assert!(!header.matches(b"key\0\0\0\0\0valuE"));
    // In one piece or in several, the sum is the same.
    for len in [0, SHORT - 9, SHORT - 8, SHORT - 7, 5000] {
        let value = vec![7; len];
        let header = RecordHeader::new(b"key", &value, 7).unwrap();
        let body = [b"key\0\0\0\0\0", &value[..]].concat();
        assert!(header.matches(&body));
        let mut hasher = header.hasher();
        body.chunks(100).for_each(|part| hasher.update(part));
        assert_eq!(hasher.digest(), header.checksum);
    }
    let longer = RecordHeader {
        key_len: 4,
        ..header
    };
    assert!(!longer.matches(b"key\0\0\0\0\0value"));
    let later = RecordHeader {
        sequence: 8,
        ..header
    };
    assert!(!later.matches(b"key\0\0\0\0\0value"));
    let longest = vec![0; to_usize(MAX_VARIABLE_KEY)];
    assert!(RecordHeader::new(&longest, b"", 1).is_some());
    assert_eq!(
        RecordHeader::new(&[longest, vec![0]].concat(), b"", 1),
        None
    );
}

#[test]
fn values_are_aligned_to_words() {
    assert_eq!(value_offset(0), 24);
    assert_eq!(value_offset(1), 32);
    assert_eq!(record_len(8, 5), 37);
}

#[test]
fn class_table_damage_is_detected() {
    let mut table = ClassTable::new([3; SIZE_CLASSES as usize]);
    assert!(table.is_whole());
    table.taken[117] = 4;
    assert!(!table.is_whole());
}
