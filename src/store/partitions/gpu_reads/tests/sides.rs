//! The GPU and the CPU serve columns in turn, while others change what they read.

use parking_lot::Mutex;
use rand::RngExt;
use std::sync::atomic::AtomicU64;

use super::*;

/// A key that one thread writes: greater and greater versions. Each reader sees what was written when it began, or what others
/// have seen, or something later, and nothing that was not begun when it ended: so the key is linearizable.
#[derive(Default)]
struct Register {
    begun: AtomicU64,
    done: AtomicU64,
    seen: AtomicU64,
}

impl Register {
    /// What a read may see at least.
    fn least(&self) -> u64 {
        let (done, seen) = (&self.done, &self.seen);
        done.load(Ordering::SeqCst).max(seen.load(Ordering::SeqCst))
    }

    fn check(&self, least: u64, value: Option<&[u8]>) {
        let version = value.map_or(0, |value| {
            let bytes = value[..8].try_into().expect("a version");
            u64::from_le_bytes(bytes)
        });
        let begun = self.begun.load(Ordering::SeqCst);
        // A version that was deleted has no value.
        let is_deleted = value.is_none();
        assert!(
            is_deleted || (least..=begun).contains(&version),
            "{version} of {least} to {begun}"
        );
        assert!(
            !is_deleted || (least..=begun).any(is_deletion),
            "{least} to {begun} have a value"
        );
        self.seen.fetch_max(version, Ordering::SeqCst);
    }
}

/// Which versions are deletions: the first one is that nothing was written yet.
fn is_deletion(version: u64) -> bool {
    version.is_multiple_of(5)
}

fn value(version: u64) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    // Records of several sizes.
    value.resize(8 + (version % 7) as usize * 30, 0);
    value
}

const REGISTERS: usize = 64;
const WRITERS: usize = 2;

/// Writes the next versions of some keys of a thread, one after the other or in a column beside gets of them.
fn write(
    store: &Store,
    registers: &[Register],
    keys: &[Vec<u8>],
    mine: &[usize],
    rng: &mut SmallRng,
) {
    let mut some: Vec<usize> = mine.to_vec();
    some.retain(|_| rng.random());
    let begin = |nth: usize| registers[nth].begun.fetch_add(1, Ordering::SeqCst) + 1;
    let end = |nth: usize, version: u64| registers[nth].done.store(version, Ordering::SeqCst);
    if rng.random() {
        for nth in some {
            let version = begin(nth);
            match is_deletion(version) {
                true => store.delete(keys[nth].clone()).unwrap(),
                false => store.put(keys[nth].clone(), value(version)).unwrap(),
            }
            end(nth, version);
        }
        return;
    }
    let versions: Vec<(usize, u64)> = some.into_iter().map(|nth| (nth, begin(nth))).collect();
    let (mut kinds, mut of, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for &(nth, version) in &versions {
        kinds.push(match is_deletion(version) {
            true => RequestKind::Delete,
            false => RequestKind::Put,
        });
        kinds.push(RequestKind::Get);
        of.extend([keys[nth].clone(), keys[nth].clone()]);
        values.extend([value(version), Vec::new()]);
    }
    let answers = store
        .execute_columns(&kinds, &columns(&of), &columns(&values))
        .unwrap();
    for (at, (nth, version)) in versions.into_iter().enumerate() {
        let expected = (!is_deletion(version)).then(|| value(version));
        assert_eq!(answers.values.get(2 * at + 1), expected.as_deref());
        end(nth, version);
    }
}

/// Reads some keys: in a column, beside changes of keys that nobody reads, or one by one.
fn read(store: &Store, registers: &[Register], keys: &[Vec<u8>], own: &[u8], rng: &mut SmallRng) {
    let mut asked: Vec<usize> = (0..REGISTERS).filter(|_| rng.random()).collect();
    let least = |nth: &usize| registers[*nth].least();
    if rng.random_range(0..4) == 0 {
        asked.truncate(4);
        for nth in asked {
            let least = least(&nth);
            registers[nth].check(least, store.get(&keys[nth]).unwrap().as_deref());
        }
        return;
    }
    let leasts: Vec<u64> = asked.iter().map(least).collect();
    let of: Vec<Vec<u8>> = asked.iter().map(|&nth| keys[nth].clone()).collect();
    let values = match rng.random_range(0..2) {
        0 => store.get_columns(&columns(&of)).unwrap(),
        _ => {
            let mut kinds = vec![RequestKind::Get; of.len()];
            kinds.push(RequestKind::Put);
            let own = own.to_vec();
            let values: Vec<Vec<u8>> = vec![Vec::new(); of.len() + 1];
            let of: Vec<Vec<u8>> = of.into_iter().chain([own]).collect();
            let answers = store.execute_columns(&kinds, &columns(&of), &columns(&values));
            answers.unwrap().values
        }
    };
    for (at, nth) in asked.into_iter().enumerate() {
        registers[nth].check(leasts[at], values.get(at));
    }
}

#[test]
fn keys_are_linearizable_while_sides_change() {
    let Some(_alone) = alone() else { return };
    for partitions in [1, 3] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let store = open(dir.path(), partitions, None);
        let registers: Vec<Register> = (0..REGISTERS).map(|_| Register::default()).collect();
        let keys: Vec<Vec<u8>> = (0..)
            .map(key)
            .filter(|key| !key.is_empty())
            .take(REGISTERS)
            .collect();
        let is_done = AtomicBool::new(false);
        let gpu_reads = &store.partitions().shared().gpu_reads;
        let seeds = Mutex::new(rng());
        let rng = || SmallRng::seed_from_u64(seeds.lock().random());
        thread::scope(|scope| {
            let (store, registers, keys) = (&store, &registers[..], &keys[..]);
            let (is_done, rng) = (&is_done, &rng);
            for writer in 0..WRITERS {
                scope.spawn(move || {
                    let mine: Vec<usize> = (writer..REGISTERS).step_by(WRITERS).collect();
                    let mut rng = rng();
                    while !is_done.load(Ordering::Acquire) {
                        write(store, registers, keys, &mine, &mut rng);
                        // While something is on its way the GPU does not have that table.
                        thread::sleep(Duration::from_micros(rng.random_range(0..400)));
                    }
                });
            }
            scope.spawn(move || {
                let mut rng = rng();
                while !is_done.load(Ordering::Acquire) {
                    gpu_reads.force(rng.random());
                    if rng.random_range(0..20) == 0 {
                        store.compact(&|_| {}).unwrap();
                    }
                    thread::yield_now();
                }
            });
            let readers: Vec<_> = (0..2)
                .map(|reader: u8| {
                    scope.spawn(move || {
                        let mut rng = rng();
                        // The GPU may find no moment at which nothing is on its way.
                        let has_helped = || store.stats().gpu_located > 0;
                        let wants_more = |round| round < 400 || round < 40_000 && !has_helped();
                        for round in (0..).take_while(|round| wants_more(*round)) {
                            read(store, registers, keys, &[7, reader, 7, 7, 7], &mut rng);
                            if round >= 400 {
                                // So that there are minutes for it.
                                thread::sleep(Duration::from_millis(5));
                            }
                        }
                    })
                })
                .collect();
            let read = readers.into_iter().map(thread::ScopedJoinHandle::join);
            let read: Vec<_> = read.collect();
            is_done.store(true, Ordering::Release);
            read.into_iter().for_each(|read| read.unwrap());
        });
        assert!(store.stats().gpu_located > 0);
    }
}
