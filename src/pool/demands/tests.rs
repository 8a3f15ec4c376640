use std::sync::mpsc;
use std::time::Duration;

use super::*;

const SHARE_BYTES: u64 = 1 << 20;

/// What partitions have noted, in quarters of a share.
fn noted(quarters: &[u64]) -> Demands {
    let demands = Demands::new(quarters.len(), SHARE_BYTES);
    for (number, &quarters) in quarters.iter().enumerate() {
        demands.note(number, quarters * SHARE_BYTES / 4, 0);
    }
    demands
}

/// What partitions may take, in quarters of a share.
fn granted(quarters: &[u64]) -> Vec<u64> {
    let demands = noted(quarters);
    let all = (0..quarters.len()).map(|nth| demands.granted(nth));
    all.map(|granted| granted / (SHARE_BYTES / 4)).collect()
}

#[test]
fn partitions_get_what_others_leave() {
    assert_eq!(granted(&[20]), [4]);
    assert_eq!(granted(&[0; 3]), [4; 3]);
    assert_eq!(granted(&[4; 3]), [4; 3]);
    assert_eq!(granted(&[4, 0, 0]), [10, 4, 4]);
    assert_eq!(granted(&[4, 2]), [5, 4]);
    // Of two that want more, each leaves the other what that takes and a quarter, but no more than half of all.
    assert_eq!(granted(&[4, 0, 12]), [5, 4, 6]);
    assert_eq!(granted(&[3, 0, 12]), [5, 4, 7]);
    assert_eq!(granted(&[8, 0, 8]), [5, 4, 5]);
}

/// Whatever they take, those who want more get their share at least, and those who take no more than they are granted leave
/// all others what these may fill at once.
#[test]
fn grants_are_within_the_budget() {
    for nth in 0..8u64.pow(4) {
        let quarters: Vec<u64> = (0..4).map(|digit| nth / 8u64.pow(digit) % 8).collect();
        let all = granted(&quarters);
        assert!(all.iter().all(|granted| (4..=16).contains(granted)));
        let is_within = quarters
            .iter()
            .zip(&all)
            .all(|(taken, granted)| taken <= granted);
        if is_within {
            assert!(quarters.iter().sum::<u64>() <= 16, "{quarters:?}: {all:?}");
        }
    }
}

/// What a partition is granted falls no faster than others grow.
#[test]
fn grants_fall_as_others_grow() {
    let mut last = granted(&[20, 0, 0, 0, 0, 0, 0, 0])[0];
    for taken in 1..20 {
        let now = granted(&[20, taken, 0, 0, 0, 0, 0, 0])[0];
        assert!(now <= last && last - now <= 1, "{taken}: {last}, {now}");
        last = now;
    }
}

/// The thread that keeps the first partition, and word of when it is woken.
fn first_keeper(demands: &Demands) -> (Worker, mpsc::Receiver<()>) {
    let (told, woken) = mpsc::channel();
    let keeper = Worker::new("keeper");
    keeper.set_work(move || {
        told.send(()).unwrap();
        None
    });
    demands.attend(0, keeper.clone());
    (keeper, woken)
}

/// Small changes are not told, and who grows wakes those who take more than their share.
#[test]
fn who_grows_wakes_those_who_take_more_than_their_share() {
    let demands = noted(&[8, 0]);
    let (keeper, woken) = first_keeper(&demands);
    demands.note(1, SHARE_BYTES / NOTED_SHARE, 0);
    demands.note(0, 3 * SHARE_BYTES, 0);
    assert!(woken.recv_timeout(Duration::from_millis(100)).is_err());
    demands.note(1, SHARE_BYTES / 2, 0);
    woken.recv_timeout(Duration::from_secs(600)).unwrap();
    keeper.stop();
}

#[test]
fn who_grows_waits_for_what_others_owe() {
    let demands = noted(&[12, 0, 2, 1]);
    assert!((0..4).all(|nth| !demands.lacks_what_others_owe(nth)));
    demands.note(0, 3 * SHARE_BYTES, SHARE_BYTES);
    // A quarter may be filled at once, and who owes does not wait for itself.
    let waiting: Vec<_> = (0..4)
        .filter(|&nth| demands.lacks_what_others_owe(nth))
        .collect();
    assert_eq!(waiting, [2]);
    demands.note(0, 3 * SHARE_BYTES, SHARE_BYTES / 8);
    assert!((0..4).all(|nth| !demands.lacks_what_others_owe(nth)));
}

#[test]
fn who_owes_is_woken() {
    let demands = noted(&[12, 2]);
    let (keeper, woken) = first_keeper(&demands);
    assert!(!demands.lacks_what_others_owe(1));
    assert!(woken.recv_timeout(Duration::from_millis(100)).is_err());
    demands.note(0, 3 * SHARE_BYTES, SHARE_BYTES);
    assert!(demands.lacks_what_others_owe(1));
    woken.recv_timeout(Duration::from_secs(600)).unwrap();
    keeper.stop();
}
