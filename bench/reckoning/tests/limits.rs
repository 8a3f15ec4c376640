use gphash_bench_reckoning::limit::{fastest, one_after_another, percent};

#[test]
fn limit_is_the_fastest_path() {
    assert_eq!(
        fastest(&[('a', 40.0), ('b', 370.0), ('c', 59.0)]),
        Some(('b', 370.0))
    );
    assert_eq!(fastest::<char>(&[]), None);
}

#[test]
fn limit_adds_up_times_on_one_resource() {
    assert_eq!(one_after_another(&[(1.0, 40.0), (1.0, 40.0)]), 20.0);
    assert_eq!(one_after_another(&[(0.5, 100.0), (0.5, 25.0)]), 40.0);
    assert_eq!(
        one_after_another(&[(1.0, 50.0), (1.0, f64::INFINITY)]),
        50.0
    );
}

#[test]
fn limit_of_zero_has_no_percentage() {
    assert_eq!(percent(54.0, 60.0), 90.0);
    assert_eq!(percent(54.0, 0.0), 0.0);
}
