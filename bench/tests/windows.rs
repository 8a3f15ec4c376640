use gphash_bench::workload::window::{Place, Span, lay_out, windows};

#[test]
fn a_window_ends_where_memory_or_the_number_of_batches_does() {
    assert_eq!(windows(&[40, 40, 40, 40], 100), [0..2, 2..4]);
    assert_eq!(windows(&[0; 300], 100), [0..256, 256..300]);
    assert_eq!(windows(&[], 100), []);
}

#[test]
fn a_batch_beyond_the_budget_stands_alone() {
    assert_eq!(windows(&[10, 500, 10, 10], 100), [0..1, 1..2, 2..4]);
}

#[test]
fn calls_share_neither_operands_nor_words_of_answers() {
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
