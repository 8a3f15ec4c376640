//! Closes of which a sync fails: the index must not be durable without the log.

use std::time::Duration;

use super::*;
use crate::Error;

#[test]
fn close_of_which_a_sync_fails_tears_no_batch() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let item = |(key, value): (&str, &str)| (key.into(), value.into());
    let models: [Model; 2] = [
        [("a", "before")].map(item).into(),
        [("a", "after"), ("b", "after")].map(item).into(),
    ];
    // Of the many syncs of several partitions some fail.
    for (partitions, every) in [(1, 1), (3, 4)] {
        let mut failed = 0;
        for nth in (rng.random_range(0..every)..).step_by(every) {
            let disk = Disk::holding(&Files::new());
            let options = options(Durability::None, partitions, Some(&disk));
            let store = Store::open(&path, &options).unwrap();
            store.put("a", "before").unwrap();
            store.flush().unwrap();
            let mut batch = WriteBatch::new();
            models[1].iter().for_each(|(key, value)| {
                batch.put(key.clone(), value.clone());
            });
            store.write(batch).unwrap();
            disk.fail(|call| call == Call::Sync, nth as u64);
            let closed = store.close();
            let has_failed = disk.failed().is_some();
            let is_sure = closed.is_ok() || !has_failed;
            let allowed = Allowed::of(&models[usize::from(is_sure)..], partitions);
            for image in disk.now().power_cuts(2, &mut rng) {
                check(
                    &image,
                    &path,
                    &path.with_extension("image"),
                    &allowed,
                    false,
                );
            }
            fs::remove_dir_all(&path).unwrap();
            if !has_failed {
                break;
            }
            failed += 1;
        }
        assert!(failed > 3, "{failed} syncs");
    }
}

/// The log is all that a store has after a change that has panicked, and closing it makes that durable.
#[test]
fn close_of_a_broken_store_keeps_what_was_answered() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    for partitions in [1, 3] {
        let disk = Disk::holding(&Files::new());
        // Nothing else syncs it so soon.
        let durability = Durability::Interval(Duration::from_secs(3600));
        let options = options(durability, partitions, Some(&disk));
        let store = Store::open(&path, &options).unwrap();
        store.put("a", "answered").unwrap();
        for partition in store.partitions().all() {
            partition.state.broke("planned".into());
        }
        assert!(matches!(store.close(), Err(Error::Broken { .. })));
        let item = ("a".into(), "answered".into());
        let models: [Model; 1] = [[item].into()];
        let allowed = Allowed::of(&models, partitions);
        for image in disk.now().power_cuts(20, &mut rng) {
            let to = path.with_extension("image");
            check(&image, &path, &to, &allowed, false);
        }
        fs::remove_dir_all(&path).unwrap();
    }
}
