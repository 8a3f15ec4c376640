//! Whether the structs of a launch and the words of the file are those of the compiled kernels.

use std::mem::offset_of;

use crate::gpu::abi::*;
use crate::gpu::launch;
use crate::layout;
use crate::layout::RecordWord;
use crate::width::low_byte;

/// The numbers of a `layout_…` array in the compiled kernels.
fn stated(name: &str) -> Vec<u64> {
    let declaration = format!("layout_{name}[");
    let line = gphash_kernels::INDEX
        .lines()
        .find(|line| line.contains(&declaration))
        .unwrap();
    let between = |from: char, to: char| {
        let start = line.find(from).unwrap() + 1;
        &line[start..start + line[start..].find(to).unwrap()]
    };
    let len: usize = between('[', ']').parse().unwrap();
    let list = between('{', '}').split(',');
    let mut numbers: Vec<u64> = list.map(|number| number.trim().parse().unwrap()).collect();
    if line.contains(".u64") {
        numbers.resize(len, 0);
        return numbers;
    }
    // The compiler writes arrays of words as bytes, and leaves out zeros at the end.
    let mut bytes: Vec<u8> = numbers.into_iter().map(low_byte).collect();
    bytes.resize(len, 0);
    bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

macro_rules! layout_of {
    ($type:ty: $($field:ident)*) => {
        vec![size_of::<$type>() as u64, $(offset_of!($type, $field) as u64),*]
    };
}

#[test]
fn abi_structs_agree_between_host_and_kernels() {
    assert_eq!(
        stated("table_view"),
        [
            layout_of!(TableView: file file_len hash_seed key_size value_size slots levels
                locations bottom_level top_level bucket_size record_stride value_offset
                checksum_offset reserved_probe
                dirty level_offset level_probe cache),
            layout_of!(CacheView: links access_counts records values buckets value_stride policy),
        ]
        .concat()
    );
    assert_eq!(
        stated("records"),
        layout_of!(RecordsView: ring ring_capacity head tail retired_tail bump_offset
            bump_count bump_stride)
    );
    assert_eq!(
        stated("batch"),
        [
            layout_of!(BatchView: keys values answers pending entry first last len tile retry
                depth sample stored order),
            layout_of!(AddressSortView: offsets ranks positions bins starts sums bin_count
                shift wanted),
        ]
        .concat()
    );
    assert_eq!(
        stated("groups"),
        layout_of!(GroupsView: claims first last entry mask seed)
    );
    assert_eq!(
        stated("counters"),
        layout_of!(Counters: taken retired items full out_of_records touches operations damaged
            wanted cache_lookups cache_hits)
    );
    let refresh = [
        layout_of!(CacheRefresh: scores evicted incoming free entries free_count keep enter room
            threshold round ages),
        layout_of!(CacheOutcome: evicted incoming taken kept entered admitted linked),
    ];
    assert_eq!(stated("cache_refresh"), refresh.concat());
    let scan = [
        layout_of!(RecoveryScanView: ranges reachable repairs repair_capacity range_count),
        layout_of!(RecordRange: offset count first_ordinal),
        layout_of!(Repair: at kind),
        layout_of!(RecoveryScanFindings: members repairs damage),
    ];
    assert_eq!(stated("recovery_scan"), scan.concat());
}

#[test]
fn abi_file_words_agree_between_host_and_kernels() {
    assert_eq!(
        stated("words"),
        [
            layout::EMPTY,
            layout::BUSY,
            layout::RESERVED_WORD,
            layout::bucket::SLOT_WORDS_BYTES,
            RecordWord::OFFSET,
            RecordWord::INSERTION,
            RecordWord::PARITY,
            RecordWord::FROZEN,
            RecordWord::COLLIDED,
            RecordWord::TENTATIVE,
            layout::PAGE,
            layout::LINE,
            layout::RESERVED_BUCKETS,
            layout::RESERVED_BUCKET_STRIDE,
            layout::DATA_START,
            layout::superblock::DIRECTORY as u64,
            u64::from(layout::hash::OVERFLOW_ROUNDS),
            u64::from(launch::THREADS),
            u64::from(launch::BLOCKS),
            u64::from(BIN_CHUNK),
            u64::from(MOST_CHUNKS),
            u64::from(DEEPEST),
            SCORES as u64,
            POLICY_LFU.into(),
            POLICY_LRU.into(),
            POLICY_RANDOM.into(),
            1,
            REPAIR_DUPLICATE,
            REPAIR_THAW,
        ]
    );
}
