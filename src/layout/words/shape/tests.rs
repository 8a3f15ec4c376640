use super::*;
use crate::width::to_usize;

#[test]
fn bucket_default_is_one_gpu_cache_line() {
    let shape = Shape::new(8, 128, 8, 2, 2).unwrap();
    assert_eq!(shape.bucket_size, 128);
    assert_eq!(Shape::new(32, 128, 8, 2, 2).unwrap().bucket_size, 384);
    assert_eq!(shape.record_stride, 128);
}

#[test]
fn record_has_room_for_its_checksum() {
    for (value_size, offset, stride) in [(1, 8, 16), (8, 8, 16), (100, 104, 128), (128, 128, 192)] {
        let plain = Shape::new(8, value_size, 8, 2, 2).unwrap();
        let shape = plain.with_checksums(true);
        assert_eq!(shape.checksum_offset(), Some(offset));
        assert_eq!(shape.record_stride, stride);
        assert_eq!(shape.with_checksums(false), plain);
    }
}

#[test]
fn shapes_out_of_bounds_are_refused() {
    for (slots, levels, locations) in [
        (0, 2, 2),
        (8, 0, 2),
        (8, 2, 0),
        (8, 2, 3),
        (u32::MAX, 2, 2),
        (33, 1, 1),
    ] {
        assert!(Shape::new(8, 8, slots, levels, locations).is_err());
    }
    for key in [0, 4, 9, 12, 136, 1 << 40] {
        assert!(Shape::new(key, 8, 8, 2, 2).is_err());
    }
    for value in [0, (64 << 10) + 1] {
        assert!(Shape::new(8, value, 8, 2, 2).is_err());
    }
}

#[test]
fn capacity_is_the_sum_of_the_levels() {
    let shape = Shape::new(8, 8, 8, 2, 2).unwrap();
    assert_eq!(shape.capacity(3), 8 * 8 + 8 * 4);
    assert_eq!(shape.top_level_for(1), 1);
    for items in [1, 20, 21, 22, 1000, 1 << 24] {
        let top = shape.top_level_for(items);
        assert!(shape.capacity(top) * 9 / 10 + 1 >= items);
    }
    assert!(shape.top_level_for(u64::MAX) > Shape::MAX_LEVEL);
}

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
