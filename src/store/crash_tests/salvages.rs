//! Salvages that a crash cuts short: the next one finds what the first would have found.

use super::*;
use crate::store::lifecycle::recover::recover_with;

/// What is wrong with a store.
#[derive(Debug, Clone, Copy)]
enum Damage {
    /// The manifests of this partition are lost.
    Manifests(u32),
    /// So is its index.
    Index(u32),
    /// A byte in the middle of its log is another one.
    Log(u32),
    /// So is one in the middle of a sorted file.
    Sst(u32),
    /// It is an older copy.
    Older(u32),
}

/// The directory of a partition.
fn of_partition(path: &Path, number: u32) -> PathBuf {
    match number {
        0 => path.to_path_buf(),
        _ => path.join(partition_name(number)),
    }
}

/// Whether a file is one of this partition.
fn is_of(path: &Path, file: &Path, number: u32) -> bool {
    let within = file.strip_prefix(path).unwrap();
    let first = within.iter().next().unwrap().to_string_lossy().into_owned();
    match number {
        0 => !first.starts_with("partition-"),
        _ => first == partition_name(number),
    }
}

/// The files of a store at `path` with damage; `older` are those of another moment. `None` if it does none.
fn damaged(files: &Files, older: &Files, path: &Path, damage: Damage) -> Option<Files> {
    let mut damaged = files.clone();
    match damage {
        Damage::Manifests(number) => {
            for name in ["MANIFEST", "MANIFEST.2"] {
                damaged.remove(&of_partition(path, number).join(name))?;
            }
        }
        Damage::Index(number) => {
            damaged.remove(&of_partition(path, number).join("index.gph"))?;
        }
        Damage::Log(number) => {
            let log = of_partition(path, number).join("wal");
            let bytes = damaged
                .iter_mut()
                .filter(|(file, _)| file.starts_with(&log));
            let (_, bytes) = bytes.max_by_key(|(_, bytes)| bytes.len())?;
            *bytes.get_mut(200)? ^= 1;
        }
        Damage::Sst(number) => {
            let sorted = of_partition(path, number).join("sst");
            let mut bytes = damaged.iter_mut();
            let (_, bytes) = bytes.find(|(file, _)| file.starts_with(&sorted))?;
            let middle = bytes.len() / 2;
            *bytes.get_mut(middle)? ^= 1;
        }
        Damage::Older(number) => {
            damaged.retain(|file, _| !is_of(path, file, number));
            let older = older.iter().filter(|(file, _)| is_of(path, file, number));
            damaged.extend(older.map(|(file, bytes)| (file.clone(), bytes.clone())));
        }
    }
    Some(damaged)
}

/// What a salvage makes of a store.
fn salvaged(path: &Path, partitions: u32) -> Model {
    recover(path, Repair::Salvage, &|_| ()).unwrap();
    let options = options(Durability::None, partitions, None);
    contents(&Store::open(path, &options).unwrap()).unwrap()
}

#[test]
fn salvage_after_one_that_was_cut_short_gives_the_same() {
    let mut rng = SmallRng::seed_from_u64(seed());
    // Of a disk: what a salvage does to a file in memory, nothing records.
    let dir = tempfile::tempdir_in(".").unwrap();
    let to = dir.path().join("image");
    let (mut cuts, mut opened) = (0, 0);
    for partitions in [1, 2, 3] {
        let path = dir.path().join(format!("store of {partitions}"));
        let mut run = Run::new(&path, Durability::None, partitions);
        let mut moments = Vec::new();
        while moments.len() < 6 || run.done() < 12 {
            run.step(&mut rng);
            moments.push(run.disk.recorded().pop().unwrap().1.files());
        }
        std::mem::forget(run.store.take());
        let files = moments.pop().unwrap();
        let older = &moments[moments.len() / 2];
        let damages = (0..partitions).flat_map(|number| {
            use Damage::*;
            [
                Manifests(number),
                Index(number),
                Log(number),
                Sst(number),
                Older(number),
            ]
        });
        let mut damages: Vec<Damage> = damages.collect();
        damages.shuffle(&mut rng);
        damages.truncate(most_images() / 30);
        for damage in damages {
            let Some(files) = damaged(&files, older, &path, damage) else {
                continue;
            };
            replace_files(&files, &path, &to, partitions);
            let expected = salvaged(&to, partitions);
            replace_files(&files, &path, &path, partitions);
            let disk = Disk::holding(&files);
            let faults = Arc::clone(&disk) as Arc<dyn Faults>;
            recover_with(&path, Repair::Salvage, &|_| (), Some(faults)).unwrap();
            let mut states = disk.recorded();
            states.shuffle(&mut rng);
            for (_, state) in states.iter().take(most_images() / 24) {
                let mut images = state.power_cuts(1, &mut rng);
                images.push(state.files());
                for image in images {
                    replace_files(&image, &path, &to, partitions);
                    let options = options(Durability::None, partitions, None);
                    if let Ok(store) = Store::open(&to, &options)
                        && let Ok(found) = contents(&store)
                    {
                        assert_eq!(Brief(&found), Brief(&expected), "{damage:?}: an opening");
                        opened += 1;
                        // What is put now is newer than all that was there.
                        let later: Model = found.into_keys().map(|key| (key, vec![1])).collect();
                        for (key, value) in &later {
                            store.put(key.clone(), value.clone()).unwrap();
                        }
                        let left = path.with_extension("left");
                        copy(&to, &left);
                        let reopened = Store::open(&left, &options).unwrap();
                        let found = contents(&reopened).unwrap();
                        assert_eq!(Brief(&found), Brief(&later), "{damage:?}: later");
                        drop(reopened);
                        fs::remove_dir_all(left).unwrap();
                    }
                    replace_files(&image, &path, &to, partitions);
                    let found = salvaged(&to, partitions);
                    assert_eq!(Brief(&found), Brief(&expected), "{damage:?}: a salvage");
                    cuts += 1;
                }
            }
        }
    }
    println!("{cuts} salvages were cut short; {opened} of them left what an opening took");
    assert!(cuts > most_images().min(IMAGES) / 6, "{cuts}");
}
