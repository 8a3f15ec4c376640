//! Tables of keys and values of variable length, in files.

mod engine;
mod hostile;
mod model;

use std::collections::BTreeMap;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use super::bytes::BytesIndex;
use super::fault_tests::seed;
use crate::pm::Entry;
use crate::table::recovery::Recovery;
use crate::{Engine, Options, Result};

/// Value and sequence number of each key.
pub(super) type Model = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

pub(super) fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub(super) fn options() -> Options {
    Options::new().engine(Engine::Cpu).capacity(16)
}

pub(super) fn try_open(path: &Path) -> Result<(BytesIndex, Recovery)> {
    BytesIndex::open_or_create(&Entry::at(path, None)?, &options())
}

pub(super) fn open(path: &Path) -> BytesIndex {
    try_open(path).unwrap().0
}

pub(super) fn rng() -> SmallRng {
    SmallRng::seed_from_u64(seed())
}

pub(super) fn bytes(len: usize, rng: &mut SmallRng) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes[..]);
    bytes
}

/// Whether a table holds what a model does, each item once.
pub(super) fn check(records: &BytesIndex, model: &Model) {
    assert_eq!(records.len(), model.len() as u64);
    let mut seen = Model::new();
    records.for_each_of(
        |_| true,
        |item| {
            let (key, sequence, value) = item.unwrap();
            let before = seen.insert(key.to_vec(), (sequence, value.to_vec()));
            assert!(before.is_none(), "a key twice: {key:x?}");
        },
    );
    assert!(seen == *model);
}
