use super::*;
use crate::store::{Request, Store, StoreOptions};

struct Append;

impl MergeOperator for Append {
    fn name(&self) -> &str {
        "append"
    }

    fn merge(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        Ok([value.unwrap_or_default(), operand].concat())
    }
}

fn merge(key: &str, operand: &str) -> Request {
    Request::Merge {
        key: key.into(),
        operand: operand.into(),
    }
}

fn get(key: &str) -> Request {
    Request::Get { key: key.into() }
}

/// Merges into a value take its length once, and not each.
#[test]
fn merged_values_are_kept_where_something_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &StoreOptions::new()).unwrap();
    let swap = Request::Swap {
        key: "a".into(),
        new: Some("x".into()),
    };
    let requests = vec![
        merge("a", "1"),
        merge("a", "2"),
        get("b"),
        get("a"),
        merge("a", "3"),
        merge("b", "4"),
        merge("a", "5"),
        swap,
        merge("a", "6"),
        merge("a", "7"),
        merge("a", "8"),
        get("c"),
    ];
    let batch = Batch::Owned(&requests);
    let requests = Requests::One(batch);
    let tiers = &store.state().tiers;
    let execution = Execution::start(&requests, tiers, Some(&Append), None).unwrap();
    let is_kept = |&nth: &usize| matches!(execution.outcome(nth), Some(Outcome::Merged(_)));
    let kept: Vec<usize> = (0..requests.len()).filter(is_kept).collect();
    assert_eq!(kept, [1, 5, 6, 10]);
    let mut answers = execution.answer_jobs(tiers, &[batch], Vec::new()).unwrap();
    let Some(Answers::Responses(responses)) = answers.pop() else {
        panic!("they came one by one");
    };
    let found = |nth: usize| match &responses[nth] {
        Response::Value(value) => value.as_deref(),
        other => panic!("a value, not {other:?}"),
    };
    assert_eq!(
        [2, 3, 7, 11].map(found),
        [None, Some(&b"12"[..]), Some(b"1235"), None]
    );
    let is_done = |nth: &usize| matches!(responses[*nth], Response::Done);
    assert!([0, 1, 4, 5, 6, 8, 9, 10].iter().all(is_done));
    assert_eq!(execution.value(b"a"), Some(Some(&b"x678"[..])));
    assert_eq!(execution.value(b"b"), Some(Some(&b"4"[..])));
}
