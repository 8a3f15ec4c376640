use gphash_bench::limit::{fastest, one_after_another, percent};

#[test]
fn the_limit_is_the_fastest_way() {
    assert_eq!(
        fastest(&[('a', 40.0), ('b', 370.0), ('c', 59.0)]),
        Some(('b', 370.0))
    );
    assert_eq!(fastest::<char>(&[]), None);
}

#[test]
fn parts_that_share_a_resource_add_up_their_times() {
    assert_eq!(one_after_another(&[(1.0, 40.0), (1.0, 40.0)]), 20.0);
    assert_eq!(one_after_another(&[(0.5, 100.0), (0.5, 25.0)]), 40.0);
    assert_eq!(
        one_after_another(&[(1.0, 50.0), (1.0, f64::INFINITY)]),
        50.0
    );
}

#[test]
fn a_share_of_no_limit_is_none() {
    assert_eq!(percent(54.0, 60.0), 90.0);
    assert_eq!(percent(54.0, 0.0), 0.0);
}
