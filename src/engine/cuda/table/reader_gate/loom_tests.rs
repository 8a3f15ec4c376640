use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;

/// What a lookup reads, and what changes it once the lookups that may have it are done.
#[derive(Default)]
struct Shared {
    reader_gate: ReaderGate,
    /// Whether lookups no longer find the entry.
    unlinked: AtomicU64,
    entry: UnsafeCell<u64>,
}

// SAFETY: loom ends the test if two threads are at the entry together.
unsafe impl Sync for Shared {}

#[test]
fn reader_gate_reuses_an_entry_without_readers() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(|| {
        let shared = Arc::new(Shared::default());
        // loom lets a sequentially consistent load go back to any store that is not.
        let Shared {
            reader_gate,
            unlinked,
            ..
        } = &*shared;
        for word in reader_gate
            .counts
            .iter()
            .chain([&reader_gate.turn, unlinked])
        {
            word.store(0, Ordering::SeqCst);
        }
        let lookups: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let read_guard = shared.reader_gate.enter();
                    if shared.unlinked.load(Ordering::SeqCst) == 0 {
                        shared.entry.with(|_| ());
                    }
                    drop(read_guard);
                })
            })
            .collect();
        shared.unlinked.store(1, Ordering::SeqCst);
        shared.reader_gate.wait();
        shared.entry.with_mut(|_| ());
        for lookup in lookups {
            lookup.join().unwrap();
        }
    });
}
