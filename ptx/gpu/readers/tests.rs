use super::*;
use crate::gpu::device::Device;

#[test]
fn reader_handed_out_is_kept_until_it_is_locked() {
    // On a machine without a GPU there is nothing to look at.
    let Ok(device) = Device::open(0) else {
        return;
    };
    let _entered = device.enter().unwrap();
    let budget = IndexBudget::new(None);
    let readers = Readers::default();
    let stream = Stream::new().unwrap();
    let handed_out = readers.on(&stream, &budget).unwrap();
    // All of them done, as nothing was put there.
    let others: Vec<_> = (0..2 * REMEMBERED_STREAMS_MAX)
        .map(|_| Stream::new().unwrap())
        .collect();
    for other in &others {
        readers.on(other, &budget).unwrap();
    }
    assert!(readers.0.lock().len() <= REMEMBERED_STREAMS_MAX);
    assert!(Arc::ptr_eq(
        &readers.on(&stream, &budget).unwrap(),
        &handed_out
    ));
}

#[test]
fn only_readers_of_threads_that_are_gone_are_forgotten() {
    let Ok(device) = Device::open(0) else {
        return;
    };
    let _entered = device.enter().unwrap();
    let budget = IndexBudget::new(None);
    let readers = Readers::default();
    let of_thread = || readers.on(&Stream::of(STREAM_OF_THE_THREAD as *mut _), &budget);
    readers.on(&Stream::new().unwrap(), &budget).unwrap();
    let own = Arc::downgrade(&of_thread().unwrap());
    for _ in 0..REMEMBERED_STREAMS_MAX / 2 {
        std::thread::scope(|scope| {
            let gone = scope.spawn(|| {
                let _entered = device.enter().unwrap();
                of_thread().unwrap();
            });
            // Else what goes with the thread may be there for a moment more.
            gone.join().unwrap();
        });
        assert_eq!(readers.0.lock().len(), 3);
        assert!(own.strong_count() > 0, "of a thread that is here");
    }
}
