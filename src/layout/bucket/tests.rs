use super::*;
use crate::width::to_usize;

#[test]
fn slot_words_share_a_line() {
    for slots in 1..=32u32 {
        let shape = Shape::new(8, 100, slots, 1, 1).unwrap();
        for slot in 0..slots {
            let addr = shape.slot_addr(shape.bucket_size, slot);
            assert_eq!(addr.state % SLOT_WORDS_BYTES, 0);
            assert_eq!(addr.state / 64, addr.record / 64);
            assert_eq!(shape.slot_at(addr.state - shape.bucket_size), slot);
        }
    }
}

#[test]
fn slot_parts_fill_the_bucket_without_overlap() {
    for key_size in [8u64, 16, 24, 32, 128] {
        for slots in 1..=32u32 {
            let shape = Shape::new(key_size, 100, slots, 1, 1).unwrap();
            let mut taken = vec![false; to_usize(shape.bucket_size)];
            for slot in 0..slots {
                let addr = shape.slot_addr(0, slot);
                let mut parts = vec![(addr.state, 8), (addr.record, 8)];
                if key_size > 8 {
                    parts.push((addr.key, key_size));
                }
                for (at, len) in parts {
                    for byte in at..at + len {
                        assert!(!std::mem::replace(&mut taken[to_usize(byte)], true));
                    }
                }
            }
        }
    }
}
