use super::*;
use crate::pm::MapOptions;
use crate::width::{low_byte, to_usize};

#[test]
fn gather_reads_values_from_their_offsets() {
    let dir = tempfile::tempdir().unwrap();
    let len = 1 << 16;
    let file = Mapping::create(&dir.path().join("f"), len, &MapOptions::default()).unwrap();
    let bytes: Vec<u8> = (0..len).map(|at| low_byte(at / 5 % 251)).collect();
    file.write(0, &bytes);
    for size in [1, 8, 16, 24, 128, 1000] {
        let offsets: Vec<u64> = (0..100).map(|nth| nth % 3 * nth * 7919 % 60_000).collect();
        let mut values = vec![255; offsets.len() * size];
        file.gather(&offsets, &mut values);
        for (offset, value) in offsets.iter().zip(values.chunks_exact(size)) {
            match to_usize(*offset) {
                0 => assert!(value.iter().all(|byte| *byte == 255)),
                offset => assert_eq!(value, &bytes[offset..offset + size]),
            }
        }
    }
    file.gather(&[], &mut []);
}

#[test]
fn scatter_writes_values_to_their_offsets() {
    let dir = tempfile::tempdir().unwrap();
    let file = Mapping::create(&dir.path().join("f"), 1 << 18, &MapOptions::default()).unwrap();
    for size in [1, 8, 24, 128, 1000] {
        let offsets: Vec<u64> = (0..100)
            .map(|nth| nth * 37 % 100 * 2048 + 64 + nth % 2 * 8)
            .collect();
        let values: Vec<u8> = (0..100 * size)
            .map(|at| low_byte(at * size % 251))
            .collect();
        file.scatter(&offsets, &values);
        let mut found = vec![0; values.len()];
        file.gather(&offsets, &mut found);
        assert_eq!(found, values);
        let mut behind = [1];
        file.read(offsets[0] + size, &mut behind);
        assert_eq!(behind, [0], "a value of {size} bytes");
    }
    file.scatter(&[], &[]);
}
