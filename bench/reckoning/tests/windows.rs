use gphash_bench_reckoning::window::{Place, Span, lay_out, windows};

#[test]
fn window_ends_at_its_memory_or_batch_limit() {
    assert_eq!(windows(&[40, 40, 40, 40], 100), [0..2, 2..4]);
    assert_eq!(windows(&[0; 300], 100), [0..256, 256..300]);
    assert_eq!(windows(&[], 100), []);
}

#[test]
fn window_of_a_batch_above_the_budget_holds_it_alone() {
    assert_eq!(windows(&[10, 500, 10, 10], 100), [0..1, 1..2, 2..4]);
}

#[test]
fn window_calls_share_no_operands_and_no_result_words() {
    let places = lay_out([(65, 3), (0, 1)].into_iter(), |len| len.div_ceil(64));
    let span = |operands, answers| Span { operands, answers };
    let expected = [
        Place {
            reads: span(0..65, 0..2),
            writes: span(65..68, 2..3),
        },
        Place {
            reads: span(68..68, 3..3),
            writes: span(68..69, 3..4),
        },
    ];
    assert_eq!(places, expected);
}
