use super::*;

#[test]
fn partition_has_each_position_once_and_in_order() {
    for len in [0, 1, 7, 64, 1000, 100_003] {
        for parts in [1, 2, 3, 8, 64] {
            let part_of = |position: usize| position.wrapping_mul(0x9E37_79B9) / 7 % parts;
            let partition = Partition::new(len, parts, part_of);
            let mut all = Vec::new();
            for part in 0..parts {
                let positions: Vec<usize> = partition.positions(part).collect();
                assert!(positions.is_sorted());
                assert!(positions.iter().all(|&position| part_of(position) == part));
                all.extend(positions);
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..len));
        }
    }
}
