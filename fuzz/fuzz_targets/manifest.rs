//! The manifest of a store, with arbitrary damage under a checksum that matches or not.

#![no_main]

mod folder;
mod stores;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use stores::{Forged, KILLED, MANIFEST, open_and_mend};
use xxhash_rust::xxh3::xxh3_64;

#[derive(Arbitrary, Debug)]
enum Input {
    Bytes(Vec<u8>),
    /// Words of the header, under a checksum that matches.
    Words(Vec<(u8, u64)>),
    /// Any bytes, likewise.
    Sealed(Vec<(u8, u8)>),
    Patched(Vec<(u8, u8)>),
    Cut(u8),
}

/// What is done to the copies.
#[derive(Arbitrary, Debug)]
enum Copies {
    /// One of them, or none, is what the input says; the other is whole.
    One(bool),
    Both,
    Alone,
}

fn seal(bytes: &mut [u8]) {
    let end = bytes.len() - 8;
    let sum = xxh3_64(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
}

fn patch(bytes: &mut [u8], patches: &[(u8, u8)]) {
    for &(at, value) in patches {
        let at = usize::from(at) % bytes.len();
        bytes[at] = value;
    }
}

fuzz_target!(|input: (Copies, Input)| {
    let (copies, input) = input;
    let mut files = KILLED.files.clone();
    let is_sealed = matches!(input, Input::Words(_) | Input::Sealed(_));
    let bytes = files.get_mut(MANIFEST).unwrap();
    match input {
        Input::Bytes(new) => *bytes = new,
        Input::Words(words) => {
            for (nth, value) in words {
                let at = usize::from(nth % 8) * 8;
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            seal(bytes);
        }
        Input::Sealed(patches) => {
            patch(bytes, &patches);
            seal(bytes);
        }
        Input::Patched(patches) => patch(bytes, &patches),
        Input::Cut(len) => bytes.truncate(usize::from(len)),
    }
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
    open_and_mend(&folder.path().join("store"), &files, forged);
});
