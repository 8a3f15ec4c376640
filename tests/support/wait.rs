use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Nothing should take so long, on a busy machine, too.
const PATIENCE: Duration = Duration::from_secs(600);

/// Waits until something holds; it must, in the end.
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Does something that may hang on a thread of its own; fails then.
pub fn must_end<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let _ends = sender;
        work()
    });
    // Nothing is sent: it ends, or panics.
    match ended.recv_timeout(PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap(),
    }
}
