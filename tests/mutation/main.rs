//! The tests are tested: faults planted into the sources, each of which some test must find.
//!
//! By itself this checks that every fault of the [list] can still be planted, and says that it planted
//! none: a fault takes minutes. With `GPHASH_MUTATIONS=N`, `all`, or parts of names with commas between
//! them, it plants them, one at a time, in a copy of the tree. It has no harness, which would hide what it
//! says.

mod list;
mod tree;

use gphash_test_support::setting;
use list::{MUTATIONS, Mutation, Suite};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tree::Tree;

/// The faults to plant: those of a name, or as many as are wanted, drawn from `GPHASH_TEST_SEED`.
fn chosen() -> Vec<&'static Mutation> {
    let wanted = std::env::var("GPHASH_MUTATIONS").unwrap_or("0".into());
    let count = match wanted.parse() {
        Ok(count) => count,
        Err(_) if wanted == "all" => MUTATIONS.len(),
        Err(_) => {
            let is_wanted =
                |fault: &&Mutation| wanted.split(',').any(|part| fault.name.contains(part));
            let named: Vec<_> = MUTATIONS.iter().filter(is_wanted).collect();
            assert!(!named.is_empty(), "no fault is named {wanted}");
            return named;
        }
    };
    let seed: u64 = setting("GPHASH_TEST_SEED").unwrap_or_else(|| rand::rng().random());
    println!("GPHASH_TEST_SEED={seed}, {count} of {}", MUTATIONS.len());
    let mut rng = StdRng::seed_from_u64(seed);
    MUTATIONS.sample(&mut rng, count).collect()
}

fn main() {
    every_mutation_applies();
    let chosen = chosen();
    if chosen.is_empty() {
        println!(
            "planted faults: NOT CHECKED. {} fit into the sources; GPHASH_MUTATIONS=all plants them, \
             and hours later it is known whether the tests find each",
            MUTATIONS.len()
        );
        return;
    }
    let count = chosen.len();
    every_mutation_is_caught(chosen);
    println!(
        "planted faults: {count} of {} planted, and each found",
        MUTATIONS.len()
    );
}

fn every_mutation_applies() {
    for mutation in MUTATIONS {
        let source = tree::original(mutation.file);
        let mutated = mutation.apply(&source);
        assert_ne!(mutated, source, "{}", mutation.name);
    }
    let mut names: Vec<_> = MUTATIONS.iter().map(|mutation| mutation.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), MUTATIONS.len(), "two faults of one name");
}

fn every_mutation_is_caught(chosen: Vec<&'static Mutation>) {
    let tree = Tree::copy();
    let mut suites: Vec<Suite> = chosen.iter().map(|mutation| mutation.suite).collect();
    suites.sort_unstable();
    suites.dedup();
    for suite in suites {
        let outcome = tree.run(suite);
        assert!(
            outcome.passed,
            "without a fault, {suite:?}:\n{}",
            outcome.output
        );
    }
    let mut missed = Vec::new();
    for mutation in chosen {
        let failed = tree.with(mutation, || tree.run(mutation.suite).failed);
        println!("| {} | `{}` |", mutation.name, failed.join("`, `"));
        if failed.is_empty() {
            missed.push(mutation.name);
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:#?}");
}
