//! Real data: the package lists of the machine, from names to stanzas.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use gphash::ReportState;
use gphash::store::{Repair, Store, StoreOptions, WriteBatch, recover};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::disk::folders;
use super::model::{Model, contents};
use super::seed;

/// Stanzas that are read, unless `GPHASH_STORE_PACKAGES` is `all`.
const SOME: usize = 3000;

/// The first stanzas that `apt-cache dumpavail` prints, by the name of their package.
fn packages() -> Option<Model> {
    let all = std::env::var("GPHASH_STORE_PACKAGES").is_ok_and(|which| which == "all");
    let most = if all { usize::MAX } else { SOME };
    // The forked process holds the locks of other tests until it runs this program, for which it waits on no disk then.
    let _ = std::fs::read("/usr/bin/apt-cache");
    let mut child = Command::new("apt-cache")
        .arg("dumpavail")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut packages = Model::new();
    let (mut name, mut stanza) = (Vec::new(), Vec::new());
    for line in BufReader::new(child.stdout.take()?).split(b'\n') {
        let line = line.ok()?;
        if line.is_empty() {
            packages.insert(std::mem::take(&mut name), std::mem::take(&mut stanza));
            if packages.len() == most {
                break;
            }
            continue;
        }
        if let Some(found) = line.strip_prefix(b"Package: ") {
            name = found.to_vec();
        }
        stanza.extend_from_slice(&line);
        stanza.push(b'\n');
    }
    // It may still want to print the others.
    let _ = child.kill();
    let _ = child.wait();
    (!packages.is_empty()).then_some(packages)
}

fn is_whole(store: &Store, model: &Model) {
    let report = store.verify(&|_| {});
    assert_eq!(report.state, ReportState::Clean, "{report:#?}");
    let all_in_index = store.stats().spill.levels.is_empty();
    // A key may be in the index and in several files.
    assert!(report.items >= model.len() as u64);
    assert!(!all_in_index || report.items == model.len() as u64);
    let found = contents(store);
    assert_eq!(found.len(), model.len());
    assert!(found == *model);
}

/// A package's new stanza; `None` takes it out.
type Update = (Vec<u8>, Option<Vec<u8>>);

/// Upgrades, removals and new packages, ten at a time.
fn updates(packages: &Model, rng: &mut SmallRng) -> Vec<Vec<Update>> {
    let all: Vec<_> = packages.iter().collect();
    let update = |rng: &mut SmallRng| {
        let (name, stanza) = all[rng.random_range(0..all.len())];
        let mut name = name.clone();
        match rng.random_range(0..10) {
            0..2 => return (name, None),
            2..4 => name.extend_from_slice(b"-next"),
            _ => {}
        }
        let build = format!("Build: {}\n", rng.random::<u64>());
        (name, Some([stanza, build.as_bytes()].concat()))
    };
    let batches = all.len() / 20;
    (0..batches)
        .map(|_| (0..10).map(|_| update(rng)).collect())
        .collect()
}

fn carry_out(batches: &[Vec<Update>], store: &Store) {
    for updates in batches {
        let mut batch = WriteBatch::new();
        for (name, stanza) in updates {
            match stanza {
                Some(stanza) => batch.put(name.as_slice(), stanza.as_slice()),
                None => batch.delete(name.as_slice()),
            };
        }
        store.write(batch).unwrap();
    }
}

/// Neighbours, from both ends and by prefix.
fn scan(store: &Store, model: &Model, rng: &mut SmallRng) {
    let names: Vec<&Vec<u8>> = model.keys().collect();
    let own = |item: (&Vec<u8>, &Vec<u8>)| (item.0.clone(), item.1.clone());
    for _ in 0..20 {
        let from = names[rng.random_range(0..names.len())];
        let found = store.scan(from.as_slice(), 50).map(Result::unwrap);
        assert!(found.eq(model.range(from.clone()..).take(50).map(own)));
        let found = store.range(..from.clone()).rev().map(Result::unwrap);
        let wanted = model.range(..from.clone()).rev().map(own);
        assert!(found.take(50).eq(wanted.take(50)));
        let prefix = &from[..from.len().min(4)];
        let found = store.prefix(prefix).map(|item| item.unwrap().0);
        let wanted = names.iter().filter(|name| name.starts_with(prefix));
        assert!(found.eq(wanted.copied().cloned()));
    }
}

/// This test.
const NAME: &str = "packages::package_lists_are_loaded_scanned_updated_crashed_and_verified";

/// Names the store to the child that dies with it.
const STORE: &str = "GPHASH_TEST_PACKAGES_STORE";

/// Memory budget of the store, if it has one: a part of what the lists need.
const BUDGET: &str = "GPHASH_TEST_PACKAGES_BUDGET";

#[test]
fn package_lists_are_loaded_scanned_updated_crashed_and_verified() {
    let Some(packages) = packages() else {
        return println!("skipped: apt-cache dumpavail prints nothing here");
    };
    let seed = seed();
    let mut rng = SmallRng::seed_from_u64(seed);
    let updates = updates(&packages, &mut rng);
    let options = |budget: Option<u64>| {
        let options = StoreOptions::new()
            .capacity(1000)
            .segment_bytes(1 << 20)
            .checkpoint_bytes(4 << 20);
        budget.map_or(options.clone(), |bytes| options.memory_budget(bytes))
    };
    if let Some(path) = std::env::var_os(STORE) {
        let budget = std::env::var(BUDGET).unwrap().parse().ok();
        let store = Store::open(path, &options(budget)).unwrap();
        carry_out(&updates, &store);
        // The store is not dropped.
        std::process::exit(0);
    }
    let bytes: usize = packages
        .iter()
        .map(|(name, stanza)| name.len() + stanza.len())
        .sum();
    println!("{} packages, {bytes} bytes", packages.len());
    for (folder, budget) in folders().iter().zip([Some(bytes as u64 / 5), None]) {
        let path = folder.path().join("packages");
        let options = options(budget);
        let store = Store::open(&path, &options).unwrap();
        let mut model = packages.clone();
        let puts: Vec<Update> = packages
            .iter()
            .map(|(name, stanza)| (name.clone(), Some(stanza.clone())))
            .collect();
        let batches: Vec<Vec<Update>> = puts.chunks(100).map(<[Update]>::to_vec).collect();
        carry_out(&batches, &store);
        is_whole(&store, &model);
        scan(&store, &model, &mut rng);
        assert_eq!(store.stats().items_evicted > 0, budget.is_some());
        store.close().unwrap();

        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME])
            .env(STORE, &path)
            .env(
                BUDGET,
                budget.map_or(String::new(), |bytes| bytes.to_string()),
            )
            .env("GPHASH_TEST_SEED", seed.to_string())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        for (name, stanza) in updates.iter().flatten().cloned() {
            match stanza {
                Some(stanza) => drop(model.insert(name, stanza)),
                None => drop(model.remove(&name)),
            }
        }
        let look = recover(&path, Repair::Check, &|_| {}).unwrap();
        assert_eq!(look.state, ReportState::NeedsRecovery, "{look:#?}");
        let store = Store::open(&path, &options).unwrap();
        is_whole(&store, &model);
        scan(&store, &model, &mut rng);
        store.close().unwrap();
        let look = recover(&path, Repair::Check, &|_| {}).unwrap();
        assert_eq!(look.state, ReportState::Clean, "{look:#?}");
    }
}
