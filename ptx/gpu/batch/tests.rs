use super::*;
use crate::gpu::budget::BUDGET_MIN;

/// Also the largest keys and values have parts of 64.
#[test]
fn parts_within_a_budget_have_room_whatever_their_length() {
    let sizes = [(8, 1), (8, 8), (128, 65_536), (16, 1024), (0, 0)];
    for bytes in [BUDGET_MIN, 1 << 30, 40 << 30] {
        let budget = IndexBudget::new(Some(bytes));
        for (key_size, value_size) in sizes {
            let most = part_ops(&budget, 1 << 18, key_size, value_size);
            assert!(most >= 64 && most.is_multiple_of(64));
            assert!(u64::from(most) <= budget.ring_records_max / 4, "{most}");
            for len in (0..=18).map(|shift| most >> shift).chain([1 << 14, 64, 1]) {
                let len = len.clamp(1, most);
                let count = len as usize;
                let blocks = blocks(len, count * key_size, count * value_size);
                let sum = blocks.iter().sum::<u64>() + OrderMemory::len_for(len);
                assert!(sum < budget.stream_bytes_max, "{len} of {most}: {sum}");
            }
        }
    }
    assert_eq!(
        part_ops(&IndexBudget::new(None), 1 << 24, 128, 65_536),
        1 << 24
    );
}
