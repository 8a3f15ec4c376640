use super::*;

#[test]
fn log_entries_round_trip() {
    let all = [
        Entry {
            key: b"",
            value: Some(b""),
            position: 0,
        },
        Entry {
            key: b"key",
            value: None,
            position: 7,
        },
        Entry {
            key: b"longer key",
            value: Some(b"value"),
            position: u32::MAX,
        },
    ];
    let mut bytes = Vec::new();
    for entry in &all {
        bytes.extend_from_slice(&entry.head());
        bytes.extend_from_slice(entry.key);
        bytes.extend_from_slice(entry.value.unwrap_or_default());
    }
    assert_eq!(
        bytes.len() as u64,
        all.iter().map(Entry::bytes).sum::<u64>()
    );
    let read: Vec<_> = entries(&bytes).collect();
    assert_eq!(read, all.map(Some));
    for len in 1..bytes.len() {
        let cut = entries(&bytes[..len]).collect::<Vec<_>>();
        let whole = cut.iter().flatten().count();
        assert_eq!(cut[..whole], read[..whole], "{len} bytes");
    }
}

#[test]
fn log_record_is_valid_only_at_its_offset() {
    let entries = b"entries";
    let here = seed(5, 64);
    let checksum = xxh3_64_with_seed(entries, here);
    let header = RecordHeader::new(7, 10, 2, 64).seal(here, checksum);
    let bytes = bytemuck::bytes_of(&header);
    assert_eq!(RecordHeader::read(bytes, here), Some(header));
    assert!(header.holds(entries, here));
    assert!(!header.holds(b"Entries", here));
    assert_eq!(RecordHeader::read(bytes, seed(5, 72)), None);
    assert_eq!(header.stride(), Some(56));
}
