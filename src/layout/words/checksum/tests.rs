use super::*;
use crate::width::low_byte;

const KEY: KeyHash = KeyHash(0x0123_4567_89AB_CDEF);

fn value(len: u64) -> Vec<u8> {
    (0..len).map(|at| low_byte(at * 37 + 11)).collect()
}

#[test]
fn checksum_is_that_of_the_format() {
    // docs/format.md states the third.
    let stated = [
        (1, 0xF96A_F4B2_D6A0_6BE3),
        (8, 0x1F30_4B2B_0AEA_F426),
        (20, 0xB13B_F327_4930_0872),
        (65536, 0x8F52_2E1B_E7FF_3EC2),
    ];
    for (len, sum) in stated {
        assert_eq!(value_checksum(KEY, &value(len)), sum, "{len} bytes");
    }
}

#[test]
fn checksum_shows_flips_exchanges_and_other_keys() {
    for len in [1, 7, 8, 9, 24, 100] {
        let whole = value(len);
        let sum = value_checksum(KEY, &whole);
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(
                value_checksum(KEY, &flipped),
                sum,
                "bit {bit} of {len} bytes"
            );
        }
        for bit in 0..64 {
            let other = KeyHash(KEY.0 ^ 1 << bit);
            assert_ne!(value_checksum(other, &whole), sum, "{len} bytes");
        }
        if len >= 16 {
            let mut exchanged = whole.clone();
            exchanged[..16].rotate_left(8);
            assert_ne!(value_checksum(KEY, &exchanged), sum, "{len} bytes");
        }
    }
}
