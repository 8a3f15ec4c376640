use std::path::PathBuf;

use super::*;

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
    for seconds in [30, 60, 120, 240, 480, 960, 1920, 3600, 3600] {
        plan.done([7].into_iter(), &Err(damage.clone()));
        assert!(plan.is_set_aside(7) && !plan.is_set_aside(8));
        let pause = Duration::from_secs(seconds);
        // It has begun.
        let left = plan.retry().unwrap();
        assert!(
            left <= pause && left > pause * 3 / 4,
            "{left:?} of {pause:?}"
        );
    }
    plan.done([7].into_iter(), &Ok(()));
    assert!(!plan.is_set_aside(7));
    plan.done([7].into_iter(), &Err(damage));
    plan.try_all();
    assert!(!plan.is_set_aside(7));
}

/// Others are compacted meanwhile: all rest for less.
#[test]
fn files_of_a_job_that_was_refused_something_are_left_alone_for_a_while() {
    for code in [libc::EIO, libc::ENOSPC] {
        let mut plan = Plan::default();
        let refused = || {
            let source = std::io::Error::from_raw_os_error(code);
            Error::io("7.sst".as_ref(), "read", source)
        };
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            plan.done([7].into_iter(), &Err(refused()));
            assert!(plan.is_set_aside(7) && !plan.is_set_aside(8));
            let pause = Duration::from_secs(seconds);
            let left = plan.retry().unwrap();
            assert!(
                left <= pause && left > pause * 3 / 4,
                "{left:?} of {pause:?}"
            );
            assert!(plan.rest().unwrap() < Duration::from_secs(1));
            plan.done([8].into_iter(), &Ok(()));
        }
        plan.done([7].into_iter(), &Ok(()));
        assert!(!plan.is_set_aside(7));
    }
}
