//! The manifest of a store, with arbitrary damage under a checksum that matches or not.

#![no_main]

mod folder;
mod manifests;
mod stores;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use manifests::Patch;
use stores::{Forged, KILLED, MANIFEST};

/// What is done to the copies.
#[derive(Arbitrary, Debug)]
enum Copies {
    /// One of them, or none, is what the input says; the other is whole.
    One(bool),
    Both,
    Alone,
}

fuzz_target!(|input: (Copies, Patch)| {
    let (copies, input) = input;
    let mut files = KILLED.files.clone();
    let is_sealed = input.is_sealed();
    let bytes = files.get_mut(MANIFEST).unwrap();
    input.apply(bytes);
    // It says which files count, and has no items itself.
    let forged = match is_sealed && *bytes != KILLED.files[MANIFEST] {
        true => Forged::Order,
        false => Forged::Nothing,
    };
    let bytes = bytes.clone();
    let second = MANIFEST.to_owned() + ".2";
    match copies {
        Copies::One(true) => {}
        Copies::One(false) => {
            let first = files.insert(second.clone(), bytes).unwrap();
            files.insert(MANIFEST.into(), first);
        }
        Copies::Both => drop(files.insert(second, bytes)),
        Copies::Alone => drop(files.remove(&second)),
    }
    let folder = folder::new();
    KILLED.open_and_mend(&folder.path().join("store"), &files, forged);
});
