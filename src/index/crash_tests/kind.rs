//! Kinds of tables: shape, and sizes of keys and values.

use std::path::Path;

use crate::engine::Write;
use crate::engine::cpu::CpuEngine;
use crate::layout::{BUSY, DATA_START, EMPTY, EXTENT_TABLES, PAGE, Shape, Superblock};
use crate::pm::Medium;
use crate::pm::sim::Simulated;
use crate::table::Table;
use crate::table::record::ValuePart;
use crate::table::recovery::{Policy, Recovery};
use crate::width::{low_byte, to_usize};
use crate::{Error, Result};

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
    /// 0 for keys and values of variable length.
    pub(super) key_size: usize,
    pub(super) value_size: usize,
    /// Whether values of fixed size have checksums.
    pub(super) checksums: bool,
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
            checksums: key_size > 8,
        }
    }

    pub(super) fn shape(&self) -> Shape {
        if self.is_variable() {
            return Shape::variable(self.slots, self.levels, self.locations).unwrap();
        }
        let sizes = (self.key_size as u64, self.value_size as u64);
        let shape = Shape::new(sizes.0, sizes.1, self.slots, self.levels, self.locations);
        shape.unwrap().with_checksums(self.checksums)
    }

    fn is_variable(&self) -> bool {
        self.key_size == 0
    }

    /// The bytes of key `n`.
    pub(super) fn key(&self, n: u64) -> Vec<u8> {
        match n {
            0..5 if self.is_variable() => return vec![low_byte(n); to_usize(n)],
            _ if self.is_variable() => {
                let rest = vec![0xA5; to_usize(n) % 11];
                return [&n.to_le_bytes()[..], &rest].concat();
            }
            _ => {}
        }
        let word = |i| if i % 2 == 0 { n } else { !n ^ i as u64 };
        let words: Vec<u64> = (0..self.key_size / 8).map(word).collect();
        bytemuck::cast_slice(&words).to_vec()
    }

    /// The bytes of a version of key `n`; no other version or key has any of the same words.
    pub(super) fn value(&self, n: u64, version: u64) -> Vec<u8> {
        let mix = |i: u64| (n ^ version << 24 ^ i << 56).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let word = |i: u64| version << 32 | mix(i);
        if self.is_variable() {
            // Of all classes from the first to that of 96 bytes, whole words or not.
            let words: Vec<u64> = (0..1 + (n ^ version) % 7).map(word).collect();
            let rest = word(7).to_le_bytes();
            return [bytemuck::cast_slice(&words), &rest[..to_usize(version) % 3]].concat();
        }
        let words: Vec<u64> = (0..self.value_size as u64 / 8).map(word).collect();
        bytemuck::cast_slice(&words).to_vec()
    }

    /// Executes a verb on keys, with those versions of them; gives the answers.
    pub(super) fn write<M: Medium>(
        &self,
        table: &Table<M>,
        verb: Write,
        keys: &[u64],
        versions: &[u64],
    ) -> Vec<bool> {
        let bytes: Vec<Vec<u8>> = keys.iter().map(|&n| self.key(n)).collect();
        let value = |(&n, &version): (&u64, &u64)| self.value(n, version);
        let values: Vec<Vec<u8>> = match verb {
            Write::Remove => vec![Vec::new(); keys.len()],
            _ => keys.iter().zip(versions).map(value).collect(),
        };
        let engine = CpuEngine::new(1);
        if self.is_variable() {
            let items = bytes.iter().zip(&values).zip(versions);
            return items
                .map(|((key, value), &version)| engine.write_one(table, verb, key, value, version))
                .map(Result::unwrap)
                .collect();
        }
        let answers = engine.write(table, verb, &bytes.concat(), &values.concat());
        let answers = answers.unwrap();
        (0..keys.len()).map(|nth| answers.contains(nth)).collect()
    }

    /// The versions of keys that are there.
    pub(super) fn get<M: Medium>(&self, table: &Table<M>, keys: &[u64]) -> Vec<Option<u64>> {
        let bytes: Vec<Vec<u8>> = keys.iter().map(|&n| self.key(n)).collect();
        let mut versions = vec![None; keys.len()];
        let engine = CpuEngine::new(1);
        if self.is_variable() {
            let slices: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
            engine
                .get_many(table, &slices, |nth, sequence, value| {
                    let version = self.version(keys[nth], &value);
                    assert_eq!(
                        sequence, version,
                        "the sequence number of key {}",
                        keys[nth]
                    );
                    versions[nth] = Some(version);
                })
                .unwrap();
            return versions;
        }
        let mut values = vec![0; keys.len() * self.value_size];
        let whole = ValuePart::whole(&table.shape);
        let found = engine.get(table, whole, &bytes.concat(), &mut values);
        let found = found.unwrap();
        for nth in found.ones() {
            let value = &values[nth * self.value_size..][..self.value_size];
            versions[nth] = Some(self.version(keys[nth], value));
        }
        versions
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
        made.medium
            .write(first.file_offset(), bytemuck::bytes_of(&first));
        open(killed(&made.medium)).0
    }
}

/// What stays of a memory whose process is killed.
pub(super) fn killed(memory: &Simulated) -> Simulated {
    memory.process_crash()
}

pub(super) fn superblock(memory: &Simulated) -> Superblock {
    // The tables of the tests are short.
    let mut head = vec![0; to_usize(EXTENT_TABLES[0] + PAGE)];
    memory.read(0, &mut head);
    match Superblock::parse(&head, memory.len(), Path::new("memory")) {
        // The commit of a recovery may complete the commit that a crash has torn, since both go
        // to one offset. The file is as long as that one says; it was only out of reach.
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

/// Opens a table and scans it, even if it was cleanly closed.
pub(super) fn open_and_scan(memory: Simulated) -> (Table<Simulated>, Recovery) {
    let policy = Policy {
        always_scan: true,
        ..Policy::INDEX
    };
    open_with(memory, policy)
}

pub(super) fn open_with(memory: Simulated, policy: Policy) -> (Table<Simulated>, Recovery) {
    let superblock = superblock(&memory);
    // What is behind comes from a growth, or a truncation, that a crash has cut short.
    memory.cut(superblock.file_len);
    Table::open(memory, superblock, Path::new("memory"), policy).unwrap()
}
