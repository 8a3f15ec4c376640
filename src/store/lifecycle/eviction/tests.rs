//! What others do in the midst of a round in which items leave the table, step by step.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::ReportState;
use crate::lsm::{Catalog, LevelFile};
use crate::pm::{Call, Faults};
use crate::store::files::dir::StoreDir;
use crate::store::files::identity::PartitionCount;
use crate::store::lifecycle::recover::recover_with;
use crate::store::recover;
use crate::store::{Durability, Repair, Store, StoreOptions};
use crate::table::item::Mutation;

mod files;

/// A store whose budget has room for all, so that nothing leaves by itself.
fn store(dir: &tempfile::TempDir) -> Store {
    store_with(dir, 0, 1 << 20)
}

fn store_with(dir: &tempfile::TempDir, threads: usize, budget: u64) -> Store {
    let options = StoreOptions::new()
        .durability(Durability::None)
        .threads(threads)
        .memory_budget(budget);
    Store::open(dir.path().join("store"), &options).unwrap()
}

fn eviction(store: &Store) -> Eviction<'_> {
    let state = store.state();
    state.eviction(state.budget.as_ref().unwrap())
}

/// Lets all items leave, and calls `meanwhile` when they are found, when they are copied, and when files have them.
fn evict(store: &Store, meanwhile: impl Fn(&str) + Sync) {
    let state = store.state();
    let used = state.tiers.table.record_bytes();
    let eviction = eviction(store);
    let cold = eviction.cold_items(used, used).unwrap();
    meanwhile("found");
    let filed = {
        let _guard = state.begin_eviction();
        let version = state.tiers.spill.version();
        let (there, numbers) = divide(&cold, &(0..cold.items.len()), &version);
        eviction.hold_for(cold.items.iter()).unwrap();
        let copy = |write: WriteEntry| {
            let copied = eviction.copy(&cold, &numbers, write);
            meanwhile("copied");
            copied
        };
        let pool = &state.shared.eviction;
        let written = state.tiers.spill.add(pool, vec![copy]).unwrap();
        state.tiers.mark(&state.store_dir, None);
        [there, written.concat()].concat()
    };
    meanwhile("written");
    leave(store, cold, &filed);
}

/// Writes all cold items.
fn spill(store: &Store, cold: &ColdItems) -> Vec<usize> {
    let all = 0..cold.items.len();
    eviction(store).spill(cold, &[all]).unwrap()
}

/// Takes what files have out of the table.
fn leave(store: &Store, cold: ColdItems, filed: &[usize]) {
    let cold = Arc::new(cold);
    for numbers in filed.chunks(SLICE_ITEMS_MIN) {
        let leaving = LeavingItems::new(&cold, numbers);
        store.core().submit(Work::Evict(leaving)).unwrap();
    }
}

/// The keys of cold items.
fn keys(cold: &ColdItems) -> Vec<Vec<u8>> {
    let keys = cold.items.iter().map(|item| cold.key(item).to_vec());
    keys.collect()
}

/// Keys that begin with some of the same bytes, in order.
fn numbered(count: usize) -> Vec<Vec<u8>> {
    let key = |nth| format!("key {nth:06}").into_bytes();
    (0..count).map(key).collect()
}

fn put_all(store: &Store, keys: &[Vec<u8>], value: &[u8]) {
    for keys in keys.chunks(500) {
        let mut batch = crate::store::WriteBatch::new();
        keys.iter().for_each(|key| batch.put(&key[..], value));
        store.write(batch).unwrap();
    }
}

/// Rounds of an eighth each, with reads of some keys in between, until few but those are left.
#[test]
fn hand_comes_to_all_items_and_leaves_what_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let all = numbered(4000);
    put_all(&store, &all, &[7; 60]);
    let hot: Vec<&Vec<u8>> = all.iter().step_by(100).collect();
    let state = store.state();
    let table = &state.tiers.table;
    let mut rounds = 0;
    while table.len() > 400 {
        for _ in 0..10 {
            store.multi_get(&hot).unwrap();
        }
        let used = table.record_bytes();
        let cold = eviction(&store).cold_items(used / 8, used).unwrap();
        let wanted = to_usize(table.len() / 8);
        assert!(cold.items.len() <= wanted + 2, "{rounds}");
        let filed = spill(&store, &cold);
        leave(&store, cold, &filed);
        rounds += 1;
        assert!(rounds < 60, "{} items stay", table.len());
    }
    let resident = |key: &&&Vec<u8>| table.get(key, |_, _| ()).unwrap().is_some();
    let left = hot.iter().filter(resident).count();
    assert!(left >= hot.len() * 9 / 10, "{left} of {}", hot.len());
    let values = store.multi_get(&all).unwrap();
    assert!(
        values
            .iter()
            .all(|value| value.as_deref() == Some(&[7; 60]))
    );
}

#[test]
fn hand_of_a_larger_table_goes_on_in_a_smaller_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    put_all(&store, &numbered(100), b"value");
    let state = store.state();
    let used = state.tiers.table.record_bytes();
    let hand = &state.budget.as_ref().unwrap().hand;
    hand.store(u64::from(u32::MAX), Ordering::Relaxed);
    assert_eq!(
        keys(&eviction(&store).cold_items(used, used).unwrap()),
        numbered(100)
    );
    let table = &state.tiers.table;
    let buckets = table.bucket_numbers();
    assert!(hand.load(Ordering::Relaxed) < buckets.end - buckets.start);
    // Buckets that there are not, and all others, each once.
    let mut found = Vec::new();
    for from in (0..4 * buckets.end).step_by(3) {
        let visit = |item: Result<(&[u8], u64, &[u8])>| found.push(item.unwrap().0.to_vec());
        table.for_each_within(from..from + 3, |_| true, visit);
    }
    found.sort_unstable();
    assert_eq!(found, numbered(100));
}

/// Changes that come while items leave make the next round begin before they must wait for it, and take more.
#[test]
fn rounds_begin_as_much_earlier_as_the_last_one_was_late() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let state = store.state();
    let budget = state.budget.as_ref().unwrap();
    let eviction = eviction(&store);
    let limit = budget.limit(&state.tiers);
    assert_eq!(budget.begins_at(limit), limit);
    // Nobody waits for a round that begins by itself.
    let _alone = budget.stalls_before.lock();
    let value = [7; 100];
    let mut keys = (0..).map(|nth| format!("{nth}"));
    let mut round = |have_waited: bool, percent_brought: usize| {
        let mut put = || store.put(keys.next().unwrap(), &value[..]).unwrap();
        while state.tiers.table.record_bytes() <= budget.begins_at(budget.limit(&state.tiers)) {
            put();
        }
        let before = state.tiers.table.len();
        let mut left = 0;
        let remove = |leaving: LeavingItems| {
            let len = leaving.count();
            left += len as u64;
            store.core().submit(Work::Evict(leaving)).map(|_| ())?;
            (0..len * percent_brought / 100).for_each(|_| put());
            Ok(())
        };
        let begin = || state.begin_eviction();
        eviction.make_room(have_waited, begin, remove).unwrap();
        left * 100 / before
    };
    let slow = round(false, 0);
    assert!((20..=30).contains(&slow), "{slow} % left");
    assert!(!budget.is_late(budget.limit(&state.tiers)));
    let waited = round(true, 40);
    assert!((45..=55).contains(&waited), "{waited} % left");
    assert!(budget.is_late(budget.limit(&state.tiers)));
    let limit = budget.limit(&state.tiers);
    let early = limit - budget.begins_at(limit);
    assert!(
        early >= limit / 8 && early <= limit / 8 * 3,
        "{early} of {limit}"
    );
    let late = round(false, 0);
    assert!(late >= 45, "{late} % left");
    let limit = budget.limit(&state.tiers);
    assert_eq!(budget.begins_at(limit), limit);
}

/// Removals write the journal of a checkpoint. What is in files and stays would be written once more in the next round.
#[test]
fn items_leave_a_few_at_a_time_if_the_disk_has_no_room_for_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_with(&dir, 8, 1 << 20);
    let all = numbered(2 * SLICE_ITEMS_MIN);
    put_all(&store, &all, &[7; 20]);
    let state = store.state();
    let used = state.tiers.table.record_bytes();
    let eviction = eviction(&store);
    let cold = eviction.cold_items(used, used).unwrap();
    let items = cold.items.len();
    let mut lens = Vec::new();
    let remove = |leaving: LeavingItems| {
        lens.push(leaving.count());
        match leaving.count() > SLICE_ITEMS_MIN {
            true => Err(Error::NoSpace {
                path: dir.path().to_path_buf(),
                needed: 1,
                source: Arc::new(std::io::ErrorKind::StorageFull.into()),
            }),
            false => store.core().submit(Work::Evict(leaving)).map(|_| ()),
        }
    };
    eviction
        .evict(cold, || Some(state.begin_eviction()), remove)
        .unwrap();
    assert!(lens[0] > SLICE_ITEMS_MIN && lens.len() >= 3, "{lens:?}");
    assert_eq!(state.tiers.table.len(), (all.len() - items) as u64);
    assert_eq!(store.range(..).count(), all.len());
}

/// Evicts 20 MB of values of so many bytes in one round, and gives how many files and value files there are.
fn evict_20_mb(value: &[u8]) -> (usize, u64) {
    let dir = tempfile::tempdir().unwrap();
    let store = store_with(&dir, 4, 64 << 20);
    let all = numbered(20_000_000 / value.len());
    put_all(&store, &all, value);
    let state = store.state();
    let used = state.tiers.table.record_bytes();
    assert_eq!(eviction(&store).eviction_threads(used), 4);
    let cold = eviction(&store).cold_items(used, used).unwrap();
    // A thread that has its quarter stops where it is.
    assert!(cold.items.len() > all.len() * 9 / 10);
    assert!(keys(&cold).is_sorted_by(|a, b| a < b));
    let eviction = eviction(&store);
    let chunks = eviction.chunks(&cold);
    let groups = eviction.side_by_side(&cold, &chunks);
    assert_eq!(groups.concat(), chunks);
    // There is memory for two threads that write, or three.
    let lens = || groups.iter().map(|group| group.len());
    assert!(lens().all(|len| (1..=3).contains(&len)) && lens().any(|len| len >= 2));
    let filed = eviction.spill(&cold, &chunks).unwrap();
    assert_eq!(filed.len(), cold.items.len());
    let version = state.tiers.spill.version();
    assert_eq!(version.newest().len(), 1);
    assert_eq!(version.entries(), cold.items.len() as u64);
    for key in keys(&cold) {
        let (_, found) = version.get(&key).unwrap().unwrap();
        assert_eq!(found.as_deref(), Some(value));
    }
    let value_files = state.tiers.spill.stats().value_files;
    (version.files().count(), value_files)
}

#[test]
fn several_threads_bring_the_same_items_as_one_run() {
    let (files, value_files) = evict_20_mb(&[9; 400]);
    assert!(files >= 4, "{files}");
    assert_eq!(value_files, 0);
}

#[test]
fn values_apart_are_in_few_files() {
    let (_, value_files) = evict_20_mb(&[9; 1000]);
    assert!((1..=4).contains(&value_files), "{value_files}");
}

/// Does something to the key `a` at a moment of a round, and gives what it has at the end.
fn after(moment: &str, change: impl Fn(&Store) + Sync) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    for key in ["a", "b", "c"] {
        store.put(key, "old").unwrap();
    }
    evict(&store, |now| {
        if now == moment {
            change(&store);
        }
    });
    assert_eq!(store.get(b"b").unwrap(), Some(b"old".to_vec()));
    let found = store.get(b"a").unwrap();
    let item = store.range(b"a".to_vec()..b"b".to_vec()).next();
    assert_eq!(item.map(|item| item.unwrap().1), found);
    // The same with all in files, and from the log and the files alone.
    evict(&store, |_| {});
    assert_eq!(store.state().tiers.table.len(), 0);
    assert_eq!(store.get(b"a").unwrap(), found);
    drop(store);
    let store = self::store(&dir);
    assert_eq!(store.get(b"a").unwrap(), found);
    assert_eq!(store.get(b"c").unwrap(), Some(b"old".to_vec()));
    found
}

#[test]
fn eviction_keeps_changes_made_meanwhile() {
    for moment in ["found", "copied", "written"] {
        let deleted = after(moment, |store| store.delete("a").unwrap());
        assert_eq!(deleted, None, "{moment}");
        let changed = after(moment, |store| store.put("a", "newer").unwrap());
        assert_eq!(changed, Some(b"newer".to_vec()), "{moment}");
        let again = after(moment, |store| {
            store.delete("a").unwrap();
            store.put("a", "again").unwrap();
        });
        assert_eq!(again, Some(b"again".to_vec()), "{moment}");
    }
}

#[test]
fn chunks_have_all_cold_items_and_end_at_cuts() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    put_all(&store, &numbered(1000), &[7; 90]);
    let state = store.state();
    let used = state.tiers.table.record_bytes();
    let cold = eviction(&store).cold_items(used, used).unwrap();
    let all = keys(&cold);
    let cuts: Vec<Vec<u8>> = ["a", "key 0003", "key 000333", "key 000334", "z"]
        .map(|cut| cut.as_bytes().to_vec())
        .to_vec();
    let mut bytes = 0;
    let ends = |item: &ColdItem, is_first: bool| {
        bytes = item.bytes() + if is_first { 0 } else { bytes };
        bytes >= 10_000
    };
    let chunks = cold.chunks(ends, &cuts);
    assert!(chunks.len() > 10, "{chunks:?}");
    let mut end = 0;
    for chunk in chunks {
        assert!(chunk.start == end && chunk.end > end, "{chunk:?}");
        end = chunk.end;
        assert!(chunk.len() <= 100, "{chunk:?}");
        let (first, last) = (&all[chunk.start], &all[chunk.end - 1]);
        assert!(!cuts.iter().any(|cut| first < cut && cut <= last));
    }
    assert_eq!(end, all.len());
}

#[test]
fn deletion_of_an_evicted_key_leaves_a_tombstone() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    store.put("a", "old").unwrap();
    evict(&store, |_| {});
    store.delete("a").unwrap();
    assert_eq!(store.state().tiers.table.len(), 1);
    assert_eq!(store.get(b"a").unwrap(), None);
    // Of what no file has there is nothing to remember.
    store.delete("nowhere").unwrap();
    assert_eq!(store.state().tiers.table.len(), 1);
    evict(&store, |_| {});
    assert_eq!(store.get(b"a").unwrap(), None);
    assert_eq!(store.range(..).count(), 0);
}

#[test]
fn promotion_keeps_newer_values_and_is_logged_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    for key in ["a", "b", "c"] {
        store.put(key, "old").unwrap();
    }
    evict(&store, |_| {});
    let all = ["a", "b", "c", "c", "d"].map(|key| key.as_bytes().to_vec());
    let read = || store.state().read_promotion(all.to_vec()).unwrap();
    let (older, newer) = (read(), read());
    assert_eq!(newer.len(), 3);
    store.put("a", "new").unwrap();
    store.delete("b").unwrap();
    store.core().submit(Work::Promote(newer)).unwrap();
    assert_eq!(store.stats().items_promoted, 1);
    let entries = store.state().tiers.spill.version().entries();
    let values = [Some(b"new".to_vec()), None, Some(b"old".to_vec())];
    assert_eq!(store.multi_get(&["a", "b", "c"]).unwrap(), values);
    evict(&store, |_| {});
    assert_eq!(store.multi_get(&["a", "b", "c"]).unwrap(), values);
    // The new value and the tombstone, unless they are compacted already.
    let now = store.state().tiers.spill.version().entries();
    assert!(now <= entries + 2, "{now} entries");
    // What was read is still below the table, but not what is newest there.
    store.core().submit(Work::Promote(older)).unwrap();
    assert_eq!(store.multi_get(&["a", "b", "c"]).unwrap(), values);
}

/// After a salvage of the log. What cannot be read replaces nothing.
#[test]
fn items_that_files_have_newer_are_those_whose_newer_values_can_be_read() {
    use std::os::unix::fs::FileExt;

    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    // The value of the second one is in a file of its own.
    let values = [("short", vec![1; 10]), ("long", vec![1; 1000])];
    for (key, value) in &values {
        store.put(*key, value.clone()).unwrap();
    }
    evict(&store, |_| {});
    let state = store.state();
    let changes = values.each_ref().map(|(key, value)| Mutation::Put {
        key: key.as_bytes(),
        value,
        sequence: EntryMeta::new(0, false).0,
    });
    state.change_table(&state.applying(), &changes).unwrap();
    let mut keys = state.tiers.older_than_files().unwrap();
    keys.sort();
    assert_eq!(keys, ["long".as_bytes(), b"short"]);
    let files = std::fs::read_dir(dir.path().join("store/sst")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    for path in files.filter(|path| path.extension().is_some_and(|name| name == "val")) {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&[0; 100], 500).unwrap();
    }
    assert_eq!(state.tiers.older_than_files().unwrap(), [b"short"]);
    assert_eq!(store.get(b"long").unwrap(), Some(vec![1; 1000]));
}

/// As many items come up at a time as have room in a group, keys and values together, and the others after them.
#[test]
fn promotion_brings_up_what_has_room_and_then_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let key = |nth: usize, len: usize| [vec![b'k'; len], nth.to_be_bytes().to_vec()].concat();
    let items: Vec<_> = (0..64).map(|nth| (key(nth, 0), vec![0; 2000])).collect();
    let long_keys: Vec<_> = (0..64).map(|nth| (key(nth, 2000), Vec::new())).collect();
    let too_long = (b"a".to_vec(), vec![0; 100 << 10]);
    let all = [&items[..], &long_keys, &[too_long]].concat();
    for some in all.chunks(64) {
        for (key, value) in some {
            store.put(key.clone(), value.clone()).unwrap();
        }
        evict(&store, |_| {});
    }
    let state = store.state();
    // It would bring up what is put back.
    state.budget.as_ref().unwrap().worker().stop();
    let keys = |items: &[(Vec<u8>, Vec<u8>)]| items.iter().map(|(key, _)| key.clone()).collect();
    let most = |len: u64| state.budget.as_ref().unwrap().limit(&state.tiers) / 32 / len;
    for all in [&items, &long_keys] {
        let promotion = state.read_promotion(keys(all)).unwrap();
        let count = promotion.len() as u64;
        assert!(0 < count && count <= most(2008), "{count} items come up");
        assert!(state.tiers.has_promotable());
        drop(state.tiers.take_promotable());
    }
    // One that never has room is in nobody's way.
    let with_others = [&all[128..], &items[..1]].concat();
    assert_eq!(state.read_promotion(keys(&with_others)).unwrap().len(), 1);
    let promotable = Vec::into_iter(keys(&items));
    state.tiers.put_back_promotable(promotable);
    while state.tiers.has_promotable() {
        store.core().keep_within_budget().unwrap();
    }
    assert_eq!(store.stats().items_promoted, 64);
    // Keys that wait have a bound, too.
    state
        .tiers
        .put_back_promotable((0..64).map(|nth| key(nth, 6000)));
    let waiting = state.tiers.take_promotable();
    assert!((1..16).contains(&waiting.len()), "{}", waiting.len());
}

/// What a file has is durable, so all that was done before is.
#[test]
fn eviction_syncs_the_log_before_it_writes_a_file() {
    use crate::Domain;
    use crate::pm::sim_disk::{Disk, Files};

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let disk = Disk::holding(&Files::new());
    let options = || {
        StoreOptions::new()
            .domain(Domain::Checkpointed)
            .durability(Durability::None)
            .memory_budget(1 << 20)
    };
    let faults = Arc::clone(&disk) as Arc<dyn Faults>;
    let store = Store::open(&path, &options().faults(faults)).unwrap();
    store.put("a", "first").unwrap();
    store.put("b", "second").unwrap();
    evict(&store, |_| {});
    let (_, state) = disk.recorded().pop().unwrap();
    drop(store);
    let mut rng = <rand::rngs::SmallRng as rand::SeedableRng>::seed_from_u64(1);
    for image in state.power_cuts(20, &mut rng) {
        let left = dir.path().join("left");
        for name in ["wal", "sst"] {
            std::fs::create_dir_all(left.join(name)).unwrap();
        }
        for (file, contents) in &image {
            std::fs::write(left.join(file.strip_prefix(&path).unwrap()), contents).unwrap();
        }
        let store = Store::open(&left, &options()).unwrap();
        // The next request comes behind both of these.
        assert_eq!(store.stats().sequence, 2);
        assert_eq!(store.get(b"b").unwrap(), Some(b"second".to_vec()));
        drop(store);
        std::fs::remove_dir_all(&left).unwrap();
    }
}

#[test]
fn sst_files_of_one_level_that_share_a_key_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    for value in ["old", "new"] {
        for key in ["a", "b", "c"] {
            store.put(key, value).unwrap();
        }
        evict(&store, |_| {});
    }
    let files = store.state().store_dir.manifest().files;
    assert_eq!(files.len(), 2);
    let numbers: Vec<u64> = files.iter().map(|file| file.number).collect();
    store.close().unwrap();
    let path = dir.path().join("store");
    let state = || recover(&path, Repair::Check, &|_| {}).unwrap().state;
    assert_eq!(state(), ReportState::Clean);
    let forged = files.iter().map(|file| LevelFile { level: 1, ..*file });
    let store_dir = StoreDir::open(&path, None, PartitionCount::ANY, None).unwrap();
    Catalog::edit(&store_dir, &forged.collect::<Vec<_>>(), &numbers).unwrap();
    drop(store_dir);
    assert_eq!(state(), ReportState::Damaged);
    let report = recover(&path, Repair::Recover, &|_| {}).unwrap();
    assert!(!report.was_repaired);
    let levels = report.files.iter().find(|file| file.name == "sst").unwrap();
    assert!(levels.damage[0].contains("overlaps"), "{levels:?}");
}

/// Nothing can be written into the index any more once a manifest was.
#[derive(Debug, Default)]
struct FixedIndex(AtomicBool);

impl Faults for FixedIndex {
    fn before(&self, call: Call, path: &Path) -> std::io::Result<()> {
        let name = path.file_name().unwrap().to_string_lossy();
        if call == Call::Write && name.starts_with("MANIFEST") {
            self.0.store(true, Ordering::Relaxed);
        }
        let is_written = matches!(call, Call::Write | Call::Create | Call::Sync);
        match name.starts_with("index") && is_written && self.0.load(Ordering::Relaxed) {
            true => Err(std::io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }
}

/// A salvage that drops the file from which an item was promoted leaves no older value of it instead, nor does one that
/// is cut short.
#[test]
fn promoted_item_outlives_its_file() {
    for faults in [
        None,
        Some(Arc::new(FixedIndex::default()) as Arc<dyn Faults>),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        for value in ["old", "new"] {
            store.put("a", value).unwrap();
            evict(&store, |_| {});
        }
        let promotion = store.state().read_promotion(vec![b"a".to_vec()]).unwrap();
        store.core().submit(Work::Promote(promotion)).unwrap();
        assert_eq!(store.stats().items_promoted, 1);
        let files = store.state().store_dir.manifest().files;
        let newest = files.iter().max_by_key(|file| file.number).unwrap();
        let newest = newest.path(store.state().store_dir.spill());
        assert_eq!(files.len(), 2);
        store.close().unwrap();
        std::fs::remove_file(newest).unwrap();
        let path = dir.path().join("store");
        let is_cut = faults.is_some();
        let salvaged = recover_with(&path, Repair::Salvage, &|_| {}, faults);
        // One that is mapped needs no calls.
        assert!(is_cut || salvaged.is_ok(), "{salvaged:?}");
        let store = self::store(&dir);
        assert_eq!(store.get(b"a").unwrap(), Some(b"new".to_vec()));
        evict(&store, |_| {});
        assert_eq!(store.state().tiers.table.len(), 0);
        assert_eq!(store.get(b"a").unwrap(), Some(b"new".to_vec()));
    }
}

/// Of what hides items of files, what comes meanwhile is left to another time.
#[test]
fn eviction_of_what_hides_others_ends() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let all = numbered(50);
    put_all(&store, &all, b"old");
    evict(&store, |_| {});
    store.put(&all[0][..], "new").unwrap();
    assert!(!store.core().evict_hiding_while(|| false).unwrap());
    let rounds = Cell::new(0);
    let another = || {
        rounds.set(rounds.get() + 1);
        store.put(&all[rounds.get()][..], "new").unwrap();
        rounds.get() < 40
    };
    assert!(store.core().evict_hiding_while(another).unwrap());
    assert_eq!(rounds.get(), 1);
    assert_eq!(store.state().tiers.table.len(), 1);
    store.core().evict_hiding().unwrap();
    assert_eq!(store.state().tiers.table.len(), 0);
}

/// It stays in the index, and is looked at once more.
#[test]
fn damaged_item_that_hides_others_is_not_found_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let all = numbered(50);
    put_all(&store, &all, b"old");
    evict(&store, |_| {});
    put_all(&store, &all, b"0123456789");
    store.put(&all[7][..], "damaged value").unwrap();
    store.close().unwrap();
    let index = dir.path().join("store/index.gph");
    let mut bytes = std::fs::read(&index).unwrap();
    let value = b"damaged value";
    let at = bytes.windows(value.len()).position(|part| part == value);
    bytes[at.expect("it is in the index")] ^= 1;
    std::fs::write(&index, bytes).unwrap();
    let store = self::store(&dir);
    let rounds = Cell::new(0);
    let goes_on = || {
        rounds.set(rounds.get() + 1);
        rounds.get() < 40
    };
    assert!(store.core().evict_hiding_while(goes_on).unwrap());
    assert_eq!(rounds.get(), 2);
    assert_eq!(store.state().tiers.table.len(), 1);
    assert!(matches!(store.get(&all[7]), Err(Error::Damaged { .. })));
}

/// A flipped bit may have an item say that a file has it, where that has an older one of its key.
#[test]
fn item_that_only_seems_to_be_in_a_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    store.put("key", "old").unwrap();
    evict(&store, |_| {});
    store.put("key", "newer value").unwrap();
    store.close().unwrap();
    let index = dir.path().join("store/index.gph");
    let mut bytes = std::fs::read(&index).unwrap();
    let value = b"newer value";
    let at = bytes.windows(value.len()).position(|part| part == value);
    // Behind the lengths, before the checksum and a word of key.
    let stamp = at.expect("it is in the index") - 24;
    bytes[stamp] ^= 2;
    std::fs::write(&index, bytes).unwrap();
    let store = self::store(&dir);
    let used = store.state().tiers.table.record_bytes();
    let cold = eviction(&store).cold_items(used, used).unwrap();
    assert!(EntryMeta(cold.items[0].stamp).was_promoted());
    let filed = spill(&store, &cold);
    leave(&store, cold, &filed);
    assert!(matches!(store.get(b"key"), Err(Error::Damaged { .. })));
}
