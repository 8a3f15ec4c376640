//! Kinds of tables: shape, and sizes of keys and values.

use std::path::Path;

use crate::Error;
use crate::index::recover::{Policy, Recovery};
use crate::index::table::Table;
use crate::layout::{BUSY, DATA_START, EMPTY, Shape, Superblock};
use crate::pm::Medium;
use crate::pm::simulated::Simulated;

/// Bytes that the simulated memory can grow to.
const MAX_LEN: u64 = 1 << 24;

/// Keys that no sequence uses.
pub(super) const FRESH: [u64; 3] = [10_001, 10_002, 10_003];

/// What a table holds. Keys are numbers, values are versions of their key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) levels: u32,
    pub(super) locations: u32,
    pub(super) slots: u32,
    pub(super) key_size: usize,
    pub(super) value_size: usize,
}

/// The keys from 1 on, and those two that equal slot states if they are 8 bytes long.
pub(super) fn keys(count: u64) -> impl Iterator<Item = u64> {
    (1..=count).chain([EMPTY, BUSY])
}

impl Kind {
    /// A kind with one key class or the other.
    pub(super) fn of((levels, locations, slots): (u32, u32, u32), key_size: usize) -> Self {
        Self {
            levels,
            locations,
            slots,
            key_size,
            value_size: 24,
        }
    }

    pub(super) fn shape(&self) -> Shape {
        let sizes = (self.key_size as u64, self.value_size as u64);
        Shape::new(sizes.0, sizes.1, self.slots, self.levels, self.locations).unwrap()
    }

    /// Bytes from one record to the next.
    pub(super) fn stride(&self) -> usize {
        self.shape().record_stride as usize
    }

    /// The bytes of key `n`.
    pub(super) fn key(&self, n: u64) -> Vec<u8> {
        let word = |i| if i % 2 == 0 { n } else { !n ^ i as u64 };
        let words: Vec<u64> = (0..self.key_size / 8).map(word).collect();
        bytemuck::cast_slice(&words).to_vec()
    }

    /// The bytes of a version of key `n`; no other version or key has any of the same words.
    pub(super) fn value(&self, n: u64, version: u64) -> Vec<u8> {
        let mix = |i: u64| (n ^ version << 24 ^ i << 56).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let word = |i: u64| version << 32 | mix(i);
        let words: Vec<u64> = (0..self.value_size as u64 / 8).map(word).collect();
        bytemuck::cast_slice(&words).to_vec()
    }

    /// Which version of key `n` these bytes are.
    pub(super) fn version(&self, n: u64, value: &[u8]) -> u64 {
        let first: u64 = bytemuck::pod_read_unaligned(&value[..8]);
        let version = first >> 32;
        assert!(
            value == self.value(n, version),
            "key {n} has a value that nobody stored: {value:x?}"
        );
        version
    }

    /// A new table for one item, hashed with `seed`.
    pub(super) fn create(&self, seed: u64) -> Table<Simulated> {
        let memory = Simulated::new(DATA_START, MAX_LEN);
        let made = Table::create(memory, self.shape(), 1, Path::new("memory")).unwrap();
        let mut first = superblock(&made.medium);
        first.hash_seed = seed;
        first.file_id = [seed, !seed];
        first.seal();
        made.medium.write(first.place(), bytemuck::bytes_of(&first));
        open(killed(&made.medium)).0
    }
}

/// What stays of a memory whose process is killed.
pub(super) fn killed(memory: &Simulated) -> Simulated {
    memory.crash_state().process_crash().memory()
}

pub(super) fn superblock(memory: &Simulated) -> Superblock {
    let mut head = vec![0; DATA_START as usize];
    memory.read(0, &mut head);
    match Superblock::parse(&head, memory.len(), Path::new("memory")) {
        // The commit of a recovery may complete the commit that a crash has torn, since both go
        // to one place. The file is as long as that one says; it was only out of reach.
        Err(Error::Truncated { expected, .. }) => {
            memory.grow(expected).unwrap();
            superblock(memory)
        }
        parsed => parsed.unwrap(),
    }
}

/// Opens a table as an index does.
pub(super) fn open(memory: Simulated) -> (Table<Simulated>, Recovery) {
    open_with(memory, Policy::INDEX)
}

/// Opens a table and scans it, even if it was closed in order.
pub(super) fn open_and_scan(memory: Simulated) -> (Table<Simulated>, Recovery) {
    let policy = Policy {
        always_scan: true,
        ..Policy::INDEX
    };
    open_with(memory, policy)
}

fn open_with(memory: Simulated, policy: Policy) -> (Table<Simulated>, Recovery) {
    let superblock = superblock(&memory);
    Table::open(memory, superblock, Path::new("memory"), policy).unwrap()
}
