use super::*;

#[test]
fn address_sort_has_a_bin_for_every_offset() {
    for file_len in [1u64 << 16, 1 << 28, 3_000_000_000, (1 << 33) + 1, 1 << 45] {
        for len in [1, 4096, 65_536, 1 << 24] {
            let bins = Bins::of(len, file_len);
            let last = (file_len - 1) >> bins.shift;
            assert!(last < u64::from(bins.count));
            let exact = bins.shift <= PAGE.ilog2();
            assert!(exact || last >= u64::from(bins.count) / 2);
            assert!(exact || bins.count == BINS_MAX || bins.count >= len * 2);
            assert!(bins.count.is_multiple_of(BIN_CHUNK));
        }
    }
}
