//! Every interleaving, under loom:
//! `RUSTFLAGS="--cfg loom" cargo test --release --lib loom`.

use loom::sync::Arc;
use loom::thread;

use super::epoch::{Epochs, GRACE};
use super::tags::{Tag, TagWord, Tags8};
use crate::layout::{EMPTY, KeyHash};
use crate::sync::{AtomicU64, Ordering};

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(run);
}

#[test]
fn a_retired_record_is_not_used_again_while_a_reader_may_hold_it() {
    model(|| {
        let epochs = Arc::new(Epochs::new());
        let slot = Arc::new(AtomicU64::new(1));
        // What stands in the record: 0 once it serves another item.
        let record = Arc::new(AtomicU64::new(7));
        let writer = thread::spawn({
            let (epochs, slot, record) = (epochs.clone(), slot.clone(), record.clone());
            move || {
                let pin = epochs.pin(1);
                slot.swap(0, Ordering::SeqCst);
                drop(pin);
                let retired_in = epochs.current();
                for _ in 0..=GRACE {
                    if epochs.try_advance() >= retired_in + GRACE {
                        record.store(0, Ordering::Relaxed);
                        return;
                    }
                }
            }
        });
        let pin = epochs.pin(0);
        if slot.load(Ordering::Acquire) == 1 {
            assert_eq!(record.load(Ordering::Relaxed), 7);
        }
        drop(pin);
        writer.join().unwrap();
    });
}

/// A slot of a bucket, as far as tags and insertions go.
struct Slot {
    state: AtomicU64,
    record: AtomicU64,
}

const NONE: u64 = 0;
const TENTATIVE: u64 = 1;
const MEMBER: u64 = 2;
const COLLIDED: u64 = 3;

/// The tag of the key.
fn tag() -> Tag {
    Tag::of(KeyHash(77))
}

/// Two slots, each in a bucket of its own that one key leads to.
struct Candidates {
    tags: [AtomicU64; 2],
    slots: [Slot; 2],
}

impl Candidates {
    fn new() -> Self {
        Self {
            tags: [(); 2].map(|()| AtomicU64::new(0)),
            slots: [(); 2].map(|()| Slot {
                state: AtomicU64::new(EMPTY),
                record: AtomicU64::new(NONE),
            }),
        }
    }

    fn tags(&self, slot: usize) -> TagWord<'_> {
        TagWord::new(&self.tags[slot])
    }

    /// What is in a slot; whoever comes first makes it known.
    fn known(&self, slot: usize) -> Tags8 {
        self.tags(slot).load().unwrap_or_else(|| {
            let state = self.slots[slot].state.load(Ordering::Acquire);
            let tag = (state != EMPTY).then_some(tag());
            self.tags(slot).fill(Tags8::of(std::iter::once(tag)))
        })
    }

    /// Inserts the key into a slot as `insert.rs` does; says whether it became a member.
    fn insert(&self, mine: usize) -> bool {
        self.known(mine);
        assert!(self.tags(mine).take(0));
        self.slots[mine].record.store(TENTATIVE, Ordering::Release);
        self.slots[mine].state.store(7, Ordering::Release);
        self.tags(mine).show(0, tag());
        let other = 1 - mine;
        if self.known(other).matching(tag()) != 0 {
            let rival = &self.slots[other].record;
            let collide = |record: &AtomicU64| {
                let _ = record.compare_exchange(
                    TENTATIVE,
                    COLLIDED,
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                );
            };
            match rival.load(Ordering::Acquire) {
                MEMBER => collide(&self.slots[mine].record),
                TENTATIVE if other < mine => {
                    collide(&self.slots[mine].record);
                    self.publish(other);
                }
                TENTATIVE => {
                    collide(rival);
                    if rival.load(Ordering::Acquire) == MEMBER {
                        collide(&self.slots[mine].record);
                    }
                }
                _ => {}
            }
        }
        self.publish(mine);
        self.slots[mine].record.load(Ordering::Acquire) == MEMBER
    }

    fn publish(&self, slot: usize) {
        let _ = self.slots[slot].record.compare_exchange(
            TENTATIVE,
            MEMBER,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
    }
}

#[test]
fn of_two_insertions_that_show_their_tags_one_becomes_a_member() {
    model(|| {
        let candidates = Arc::new(Candidates::new());
        let other = thread::spawn({
            let candidates = candidates.clone();
            move || candidates.insert(1)
        });
        let mine = candidates.insert(0);
        let others = other.join().unwrap();
        assert!(mine ^ others, "{mine} and {others}");
    });
}

#[test]
fn a_late_reader_of_the_states_does_not_hide_an_insertion() {
    model(|| {
        let candidates = Arc::new(Candidates::new());
        let reader = thread::spawn({
            let candidates = candidates.clone();
            move || candidates.known(0).matching(tag()) != 0
        });
        assert!(candidates.insert(0));
        assert_eq!(candidates.known(0).matching(tag()), 1);
        reader.join().unwrap();
        assert_eq!(candidates.known(0).matching(tag()), 1);
    });
}

#[test]
fn a_slot_is_taken_after_all_that_its_last_owner_stored() {
    model(|| {
        let candidates = Arc::new(Candidates::new());
        assert!(candidates.insert(0));
        let taker = thread::spawn({
            let candidates = candidates.clone();
            move || {
                if !candidates.tags(0).take(0) {
                    return;
                }
                let state = &candidates.slots[0].state;
                assert_eq!(state.load(Ordering::Relaxed), EMPTY);
                state.store(9, Ordering::Relaxed);
            }
        });
        candidates.slots[0].state.store(EMPTY, Ordering::Release);
        candidates.tags(0).release(0);
        taker.join().unwrap();
        let taken = candidates.known(0).empty() == 0;
        let state = candidates.slots[0].state.load(Ordering::Relaxed);
        assert_eq!(state, if taken { 9 } else { EMPTY });
    });
}
