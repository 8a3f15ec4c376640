use super::*;
use crate::DATA_START;

#[test]
fn extent_entry_that_is_damaged_has_no_kind() {
    for kind in [ExtentKind::Level, ExtentKind::Arena, ExtentKind::Free] {
        let entry = ExtentEntry::new(kind, 0, DATA_START, 4096);
        assert_eq!(entry.kind(), Some(kind));
    }
    let entry = ExtentEntry::new(ExtentKind::Arena, 0, DATA_START, 4096);
    let mut bytes = bytemuck::bytes_of(&entry).to_vec();
    for byte in 0..bytes.len() {
        bytes[byte] ^= 1;
        let damaged: ExtentEntry = bytemuck::pod_read_unaligned(&bytes);
        assert_eq!(damaged.kind(), None);
        bytes[byte] ^= 1;
    }
}
