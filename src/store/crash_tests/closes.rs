//! Closes of which a sync fails: the index must not be durable without the log.

use super::*;

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
