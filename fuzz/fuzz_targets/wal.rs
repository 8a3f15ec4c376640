//! The log of a store, with arbitrary damage under checksums that match or not.

#![no_main]

mod folder;
mod segments;
mod stores;

use libfuzzer_sys::fuzz_target;
use segments::Patch;
use stores::{Forged, KILLED};

fuzz_target!(|patches: Vec<(u8, Patch)>| {
    let mut files = KILLED.files.clone();
    let mut forged = Forged::Nothing;
    for (segment, patch) in patches.into_iter().take(8) {
        let logs: Vec<String> = files
            .keys()
            .filter(|name| name.starts_with("wal/"))
            .cloned()
            .collect();
        let Some(name) = logs.get(usize::from(segment) % logs.len().max(1)) else {
            break;
        };
        match patch {
            Patch::Remove => drop(files.remove(name)),
            Patch::Swap { other } => {
                let other = files[&logs[usize::from(other) % logs.len()]].clone();
                files.insert(name.clone(), other);
            }
            patch => {
                let is_record = matches!(patch, Patch::Record { .. });
                let bytes = files.get_mut(name).unwrap();
                let before = is_record.then(|| bytes.clone());
                patch.apply(bytes);
                if before.is_some_and(|before| before != *bytes) {
                    // Lengths among them, by which other bytes become keys and values.
                    forged = Forged::Items;
                }
            }
        }
    }
    let folder = folder::new();
    KILLED.open_and_mend(&folder.path().join("store"), &files, forged);
});
