//! Power cuts: sectors, lengths and names of all files arrive or not, as they like. What is opened then
//! holds all that was added, and at most the addition under way.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::pm::sim_disk::{Disk, DiskState, Files, hash};
use crate::width::to_usize;

/// Images that are opened for each history.
const IMAGES: usize = 250;

fn tiny() -> SpillOptions {
    SpillOptions {
        file_bytes: 3000,
        level_bytes: 9000,
        ..options()
    }
}

/// Opens an image of the files of `from` at `to`.
fn check(image: &Files, from: &Path, to: &Path, allowed: &[Model]) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).unwrap();
    for (path, contents) in image {
        fs::write(to.join(path.strip_prefix(from).unwrap()), contents).unwrap();
    }
    let spill = open(to, None, tiny()).unwrap();
    let found = values(&contents(&spill.version(), false, 50).unwrap());
    let is_allowed = allowed.iter().any(|model| values(model) == found);
    assert!(
        is_allowed,
        "found {found:?}, none of {} states",
        allowed.len()
    );
    // And it works on.
    while spill.compact().unwrap() {}
    assert!(values(&contents(&spill.version(), true, 50).unwrap()) == found);
    model::check_files(&spill, to);
}

/// What the disk may hold at each moment of an opening after the process has died in `state`.
fn opening(state: &DiskState, path: &Path, compacts: bool) -> Vec<DiskState> {
    fs::remove_dir_all(path).unwrap();
    fs::create_dir(path).unwrap();
    let disk = Disk::after_death(state);
    let spill = open(path, Some(disk.clone()), tiny()).unwrap();
    if compacts {
        let _ = spill.compact().unwrap();
    }
    drop(spill);
    let states = disk.recorded().into_iter();
    states.map(|(_, state)| state).collect()
}

#[test]
fn power_cut_leaves_whole_additions() {
    let seed = seed();
    let mut images = 0;
    for nth in 0..3 {
        let mut rng = SmallRng::seed_from_u64(seed.wrapping_add(nth));
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("spill");
        fs::create_dir(&path).unwrap();
        let disk = Disk::holding(&Files::new());
        let mut spill = open(&path, Some(disk.clone()), tiny()).unwrap();
        let mut models = vec![Model::new()];
        for sequence in 0..rng.random_range(4..20) {
            let done = models.len() - 1;
            let mut model = models[done].clone();
            let mut changes = Model::new();
            for _ in 0..rng.random_range(1..12) {
                let value = rng.random_bool(0.7).then(|| {
                    let len = rng.random_range(0..900);
                    (0..len).map(|_| rng.random()).collect()
                });
                changes.insert(vec![rng.random_range(0..30)], (sequence, value));
            }
            model.extend(changes.clone());
            disk.begin(done as u64 * 2 + 1);
            add(&spill, &changes).unwrap();
            models.push(model);
            disk.begin(done as u64 * 2 + 2);
            while rng.random_bool(0.6) && spill.compact().unwrap() {}
            if rng.random_bool(0.2) {
                drop(spill);
                spill = open(&path, Some(disk.clone()), tiny()).unwrap();
            }
        }
        let mut states = disk.recorded();
        drop(spill);
        states.shuffle(&mut rng);
        let to = dir.path().join("image");
        let mut seen = HashSet::new();
        for (moment, state) in states {
            // An addition under way may be there.
            let (done, begun) = (to_usize(moment) / 2, to_usize(moment.div_ceil(2)));
            let allowed = &models[done..=begun];
            let mut all = state.power_cuts(4, &mut rng);
            all.push(state.files());
            if rng.random_ratio(1, 6) {
                let mut states = opening(&state, &path, true);
                states.shuffle(&mut rng);
                let cuts = states.iter().take(8);
                all.extend(cuts.flat_map(|state| state.power_cuts(2, &mut rng)));
            }
            for image in all {
                if seen.insert(hash(&image)) {
                    check(&image, &path, &to, allowed);
                }
            }
            if seen.len() >= IMAGES {
                break;
            }
        }
        images += seen.len();
    }
    println!("{images} images");
    assert!(images > 100);
}

/// The process dies amid a compaction, and the power fails while the next one opens the files: it must not
/// have removed what the last durable list has.
#[test]
fn open_removes_only_unlisted_files() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("spill");
    fs::create_dir(&path).unwrap();
    let disk = Disk::holding(&Files::new());
    let spill = open(&path, Some(disk.clone()), tiny()).unwrap();
    let mut model = Model::new();
    for sequence in 0..4 {
        let keys = (0..10).map(|_| vec![rng.random_range(0..30)]);
        let changes: Model = keys
            .map(|key| (key, (sequence, Some(vec![9; 300]))))
            .collect();
        add(&spill, &changes).unwrap();
        model.extend(changes);
    }
    drop(disk.recorded());
    while spill.compact().unwrap() {}
    let states = disk.recorded();
    drop(spill);
    let to = dir.path().join("image");
    let mut seen = HashSet::new();
    for (_, state) in states {
        for state in opening(&state, &path, false) {
            for image in state.power_cuts(16, &mut rng) {
                if seen.insert(hash(&image)) {
                    check(&image, &path, &to, &[model.clone()]);
                }
            }
        }
    }
    println!("{} images", seen.len());
    assert!(seen.len() > 20);
}
