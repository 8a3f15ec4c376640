use loom::thread;

use super::*;
use crate::sync::be_thread;

/// A table of two keys that a group changes one after the other, in one partition or in one each.
struct Model {
    clock: Arc<CommitClock>,
    partitions: Vec<Published>,
    table: [AtomicU64; 2],
}

impl Model {
    fn new(partitions: usize) -> Self {
        let clock = std::sync::Arc::new(CommitClock::new(partitions));
        let published = |number| Published::new(std::sync::Arc::clone(&clock), number);
        Self {
            partitions: (0..partitions).map(published).collect(),
            clock: clock.clone(),
            table: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    /// What a reader of a moment finds, whose commit has changed nothing since: a number, which grows by one with
    /// each group.
    fn get(&self, key: usize, moment: u64) -> u64 {
        let partition = &self.partitions[key % self.partitions.len()];
        match partition.value(&[u8::try_from(key).unwrap()], moment) {
            Some(value) => u64::from(value.unwrap()[0]),
            None => self.table[key].load(Ordering::Acquire),
        }
    }

    fn change(&self, number: u8) {
        let value = [number];
        let entry = |key: &'static [u8]| Entry {
            key,
            value: Some(&value),
            position: 0,
        };
        let finals = [entry(&[0]), entry(&[1])];
        let find = |_: &[u8]| Some(finals[0].value);
        let shares = finals.chunks(finals.len() / self.partitions.len());
        let groups: Vec<GroupWrites> = shares.map(|share| GroupWrites::new(share, &find)).collect();
        let parts: Vec<_> = self.partitions.iter().zip(&groups).collect();
        Published::show_all(&parts, |commit_seq| {
            assert_eq!(commit_seq, u64::from(number));
            for key in &self.table {
                key.store(number.into(), Ordering::Release);
            }
        });
    }
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut explored = loom::model::Builder::new();
    explored.preemption_bound = Some(3);
    explored.check(model);
}

/// Changes a model while `read` reads it.
fn change_beside(model: Model, groups: u8, read: fn(&Model)) {
    let model = loom::sync::Arc::new(model);
    let reader = {
        let model = loom::sync::Arc::clone(&model);
        thread::spawn(move || {
            be_thread(1);
            read(&model);
        })
    };
    (1..=groups).for_each(|number| model.change(number));
    reader.join().unwrap();
    let last = u64::from(groups);
    assert_eq!(model.clock.moment(), last);
    assert_eq!(
        (model.get(0, u64::MAX), model.get(1, u64::MAX)),
        (last, last)
    );
}

/// Who has seen a group in one key sees it in the other, and in the number of the newest commit; and no reader
/// has the memory of a group that has ended.
#[test]
fn loom_group_is_seen_as_a_whole() {
    explore(|| {
        change_beside(Model::new(1), 2, |model| {
            let first = model.get(1, u64::MAX);
            let second = model.get(0, u64::MAX);
            assert!(first <= second, "{first} {second}");
            assert!(second <= model.partitions[0].newest());
        });
    });
}

/// A moment sees a group that changes two partitions in both of them, or is older than it.
#[test]
fn loom_moment_sees_a_group_in_all_partitions_or_in_none() {
    explore(|| {
        change_beside(Model::new(2), 1, |model| {
            let moment = model.clock.moment();
            for partition in &model.partitions {
                assert!(partition.newest() >= moment);
            }
            // What is newer than the moment is among the old versions, which this model has not.
            assert!(model.get(0, moment) >= moment);
            assert!(model.get(1, moment) >= moment);
        });
    });
}

/// Who has seen a group in one partition sees it in the other from then on.
#[test]
fn loom_group_that_was_seen_is_in_all_partitions() {
    explore(|| {
        change_beside(Model::new(2), 1, |model| {
            let first = model.get(0, u64::MAX);
            assert!(first <= model.get(1, u64::MAX));
        });
    });
}
