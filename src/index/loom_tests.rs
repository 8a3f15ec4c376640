//! Every interleaving, under loom:
//! `RUSTFLAGS="--cfg loom" cargo test --release --lib loom`.

use loom::sync::Arc;
use loom::thread;

use super::epoch::{Epochs, GRACE};
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
