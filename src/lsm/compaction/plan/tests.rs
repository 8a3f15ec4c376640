use std::path::PathBuf;

use super::*;

/// Has a job of file 7 fail with an error as often as this, each time with such a pause in seconds. Tells `then` when
/// that began.
fn fail_again(plan: &mut Plan, error: &Error, pauses: &[u64], then: impl Fn(&mut Plan, Instant)) {
    for &seconds in pauses {
        let begun = Instant::now();
        plan.done([7].into_iter(), &Err(error.clone()));
        let pause = Duration::from_secs(seconds);
        // It has begun, and is over where another thread has made this one late enough.
        assert!(plan.is_set_aside(7) || begun.elapsed() >= pause);
        assert!(!plan.is_set_aside(8));
        let left = plan.retry().unwrap_or_default();
        assert!(
            left <= pause && left + begun.elapsed() >= pause,
            "{left:?} of {pause:?}"
        );
        then(plan, begun);
    }
    plan.done([7].into_iter(), &Ok(()));
    assert!(!plan.is_set_aside(7));
}

/// To find the same damage again takes as long as the first time.
#[test]
fn damaged_files_are_left_alone_for_longer_each_time() {
    let mut plan = Plan::default();
    let damage = Error::Damaged {
        path: PathBuf::from("7.sst"),
        what: "data block",
        at: 0,
        found: "another checksum".into(),
    };
    let pauses = [30, 60, 120, 240, 480, 960, 1920, 3600, 3600];
    fail_again(&mut plan, &damage, &pauses, |_, _| ());
    plan.done([7].into_iter(), &Err(damage));
    plan.try_all();
    assert!(!plan.is_set_aside(7));
}

/// Others are compacted meanwhile: all rest for less.
#[test]
fn files_of_a_job_that_was_refused_something_are_left_alone_for_a_while() {
    for code in [libc::EIO, libc::ENOSPC] {
        let source = std::io::Error::from_raw_os_error(code);
        let refused = Error::io("7.sst".as_ref(), "read", source);
        let pauses = [1, 2, 4, 8, 16, 32, 64, 64];
        fail_again(&mut Plan::default(), &refused, &pauses, |plan, begun| {
            let rest = plan.rest().unwrap_or_default();
            let shortest = Duration::from_millis(100);
            assert!(rest <= shortest, "{rest:?}");
            assert!(rest + begun.elapsed() >= shortest, "{rest:?}");
            plan.done([8].into_iter(), &Ok(()));
            assert!(plan.rest().is_none());
        });
    }
}
