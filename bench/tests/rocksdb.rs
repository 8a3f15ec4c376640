//! The checks of H-Rocks (Pandey and Basu), section 6.6, against RocksDB itself, once by its defaults and once
//! tuned as in the bench `store`: all are sent the same random requests, gphash in batches and RocksDB one
//! after the other, and each answer is compared, at the end all that they hold. Gets and puts of one key; of
//! one key among many; the same with deletes; the same with merges, which stand for updates. How many there
//! are of each kind changes from batch to batch.
//!
//! `GPHASH_ROCKSDB_REQUESTS` says how many requests each check sends.

use std::path::Path;
use std::sync::Arc;

use gphash::store::{Durability, MergeOperator, Request, Response, Store, StoreOptions};
use gphash_bench::rocks::Setup;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rocksdb::{DB, IteratorMode, MergeOperands, WriteOptions};

/// Keys beside the one that most requests may be about.
const KEYS: u32 = 20_000;

/// Lengths of batches: one request, a few, so many that several threads execute them.
const BATCHES: [usize; 5] = [1, 10, 500, 3000, 40_000];

/// A value that tells in which order it was merged from others.
fn merged(value: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8]| {
        let mut word = [0; 8];
        let len = bytes.len().min(8);
        word[..len].copy_from_slice(&bytes[..len]);
        u64::from_le_bytes(word)
    };
    let before = number(value.unwrap_or_default());
    let after = before.wrapping_mul(31).wrapping_add(number(operand));
    after.to_le_bytes().to_vec()
}

struct Merged;

impl MergeOperator for Merged {
    fn name(&self) -> &str {
        "merged"
    }

    fn merge(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        Ok(merged(value, operand))
    }
}

fn merge_all(_: &[u8], value: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut value = value.map(<[u8]>::to_vec);
    for operand in operands {
        value = Some(merged(value.as_deref(), operand));
    }
    value
}

fn open_store(folder: &Path) -> Store {
    let options = StoreOptions::new()
        .durability(Durability::None)
        .merge_operator(Arc::new(Merged));
    Store::open(folder.join("gphash"), &options).unwrap()
}

/// By its defaults, and tuned.
fn open_peers(folder: &Path) -> [DB; 2] {
    [("rocksdb", false), ("rocksdb-tuned", true)].map(|(name, is_tuned)| {
        let setup = Setup {
            is_tuned,
            cache: 64 << 20,
            data: 0,
            budget: None,
            cores: 2,
        };
        let mut options = setup.options().unwrap();
        options.set_merge_operator("merged", merge_all, |_, _, _| None);
        DB::open(&options, folder.join(name)).unwrap()
    })
}

/// Most gets, puts, deletes and merges, in proportion to each other.
type Kinds = [u32; 4];

const GETS_AND_PUTS: Kinds = [9, 9, 0, 0];
const WITH_DELETES: Kinds = [9, 9, 5, 0];
const WITH_MERGES: Kinds = [9, 9, 5, 9];

/// What a check sends.
struct Check {
    has_many_keys: bool,
    most: Kinds,
}

impl Check {
    fn request(&self, weights: &Kinds, same: f64, rng: &mut SmallRng) -> Request {
        let number = match self.has_many_keys && !rng.random_bool(same) {
            true => rng.random_range(1..=KEYS),
            false => 0,
        };
        let key = format!("key {number}").into_bytes();
        let mut at = rng.random_range(0..weights.iter().sum());
        let kind = weights.iter().position(|&weight| {
            let is_here = at < weight;
            at = at.saturating_sub(weight);
            is_here
        });
        match kind.expect("within the sum") {
            0 => Request::Get { key },
            1 => {
                let mut value = vec![0; rng.random_range(0..200)];
                rng.fill(&mut value[..]);
                Request::Put { key, value }
            }
            2 => Request::Delete { key },
            _ => Request::Merge {
                key,
                operand: rng.random::<u64>().to_le_bytes().to_vec(),
            },
        }
    }

    fn batch(&self, rng: &mut SmallRng) -> Vec<Request> {
        let weights = self.most.map(|most| rng.random_range(most.min(1)..=most));
        let same = *[0.0, 0.01, 0.5].choose(rng).unwrap();
        let len = *BATCHES.choose(rng).unwrap();
        (0..len)
            .map(|_| self.request(&weights, same, rng))
            .collect()
    }

    fn run(has_many_keys: bool, most: Kinds) {
        let check = Self {
            has_many_keys,
            most,
        };
        let setting = |name: &str| std::env::var(name).ok().map(|value| value.parse().unwrap());
        let seed = setting("GPHASH_TEST_SEED").unwrap_or_else(rand::random);
        let least = setting("GPHASH_ROCKSDB_REQUESTS").unwrap_or(300_000);
        println!("GPHASH_TEST_SEED={seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut store = open_store(folder.path());
        let peers = open_peers(folder.path());
        let (mut requests, mut answers, mut batches) = (0, 0u64, 0u64);
        while requests < least {
            let batch = check.batch(&mut rng);
            requests += batch.len() as u64;
            batches += 1;
            let given = store.execute(batch.clone()).unwrap();
            assert_eq!(given.len(), batch.len());
            for (nth, (request, given)) in batch.iter().zip(given).enumerate() {
                let expected = peers.each_ref().map(|peer| execute(peer, request));
                let is_same = |expected: &Option<Option<Vec<u8>>>| match (&given, expected) {
                    (Response::Value(given), Some(expected)) => given == expected,
                    (Response::Done, None) => true,
                    _ => false,
                };
                assert!(
                    expected.iter().all(is_same),
                    "batch {batches}, request {nth}: {request:?}"
                );
                answers += u64::from(matches!(given, Response::Value(_)));
            }
            if rng.random_ratio(1, 50) {
                drop(store);
                store = open_store(folder.path());
            }
        }
        let mut items = 0;
        let mut of_peers = peers
            .each_ref()
            .map(|peer| peer.iterator(IteratorMode::Start));
        for item in store.range(..) {
            let item = item.unwrap();
            for of_peer in &mut of_peers {
                let (key, value) = of_peer.next().expect("RocksDB has fewer items").unwrap();
                assert_eq!(item, (key.into_vec(), value.into_vec()));
            }
            items += 1;
        }
        for of_peer in &mut of_peers {
            assert!(of_peer.next().is_none(), "RocksDB has more items");
        }
        println!(
            "{requests} requests in {batches} batches, {answers} values and {items} items compared"
        );
    }
}

/// The value for a get.
fn execute(peer: &DB, request: &Request) -> Option<Option<Vec<u8>>> {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    match request {
        Request::Get { key } => return Some(peer.get(key).unwrap()),
        Request::Put { key, value } => peer.put_opt(key, value, &options),
        Request::Delete { key } => peer.delete_opt(key, &options),
        Request::Merge { key, operand } => peer.merge_opt(key, operand, &options),
        other => unreachable!("{other:?}"),
    }
    .unwrap();
    None
}

#[test]
fn rocksdb_gets_and_puts_of_one_key() {
    Check::run(false, GETS_AND_PUTS);
}

#[test]
fn rocksdb_gets_and_puts_of_one_key_among_many() {
    Check::run(true, GETS_AND_PUTS);
}

#[test]
fn rocksdb_deletes_among_gets_and_puts() {
    Check::run(false, WITH_DELETES);
    Check::run(true, WITH_DELETES);
}

#[test]
fn rocksdb_merges_among_gets_and_puts() {
    Check::run(false, WITH_MERGES);
    Check::run(true, WITH_MERGES);
}
