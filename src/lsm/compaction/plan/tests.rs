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
    let mut pauses = Vec::new();
    for _ in 0..9 {
        plan.done([7].into_iter(), &Err(damage.clone()));
        assert!(plan.is_set_aside(7) && !plan.is_set_aside(8));
        pauses.push(plan.retry().unwrap().as_secs_f64().round());
    }
    assert_eq!(pauses[..3], [30., 60., 120.]);
    assert_eq!(pauses[7..], [3600., 3600.]);
    plan.done([7].into_iter(), &Ok(()));
    assert!(!plan.is_set_aside(7));
    plan.done([7].into_iter(), &Err(damage));
    plan.try_all();
    assert!(!plan.is_set_aside(7));
}
