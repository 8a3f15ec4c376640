//! The text of a store's statistics, read line by line as the format says.

use std::collections::{HashMap, HashSet};

use super::prometheus;
use crate::store::{Store, StoreOptions, WriteBatch};

/// A sample: its name, its labels, its value.
type Sample<'t> = (&'t str, Vec<(&'t str, String)>, f64);

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    let first = letters.next();
    first.is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Takes `name="value"` from the front of `rest`; the value's escapes are resolved.
fn take_label<'t>(rest: &mut &'t str) -> (&'t str, String) {
    let (name, quoted) = rest.split_once("=\"").expect("a label");
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    loop {
        match letters.next().expect("a quote at the end") {
            (_, '\\') => value.push(match letters.next() {
                Some((_, 'n')) => '\n',
                Some((_, letter @ ('\\' | '"'))) => letter,
                other => panic!("{other:?} is no escape"),
            }),
            (end, '"') => {
                *rest = &quoted[end + 1..];
                return (name, value);
            }
            (_, letter) => value.push(letter),
        }
    }
}

fn parse_sample(line: &str) -> Sample<'_> {
    let end = line.find(['{', ' ']).expect("a name");
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            labels.push(take_label(&mut rest));
            match rest.split_at(1) {
                (",", more) => rest = more,
                ("}", more) => break rest = more,
                (other, _) => panic!("{other:?} behind a label"),
            }
        }
    }
    let value = rest.strip_prefix(' ').expect("a value behind a space");
    (name, labels, value.parse().expect("a number"))
}

/// All samples, once each rule of the format was found to be kept.
fn parse(text: &str) -> Vec<Sample<'_>> {
    assert!(text.ends_with('\n'));
    let mut kinds: HashMap<&str, &str> = HashMap::new();
    let mut helped = "";
    let mut current = ("", "");
    let mut seen = HashSet::new();
    let mut samples = Vec::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').expect("a name and words");
            assert!(is_name(name) && !words.is_empty() && !words.contains('\\'));
            helped = name;
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a type");
            assert_eq!(name, helped, "its help comes before");
            assert!(["gauge", "counter", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(kinds.insert(name, kind).is_none(), "{name} comes twice");
            current = (name, kind);
        } else {
            let (name, labels, value) = parse_sample(line);
            let suffix = name.strip_prefix(current.0).expect("of the type before");
            match current.1 {
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
                _ => assert_eq!(suffix, "", "{line}"),
            }
            assert!(is_name(name) && name.starts_with("gphash_"), "{line}");
            assert!(labels.iter().all(|(label, _)| is_name(label)), "{line}");
            assert!(value.is_finite() && value >= 0.0, "{line}");
            assert!(seen.insert((name, labels.clone())), "twice: {line}");
            samples.push((name, labels, value));
        }
    }
    samples
}

/// Buckets of each histogram ascend, in their bounds and in what they count, up to its count.
fn check_histograms(samples: &[Sample<'_>]) {
    let mut buckets: Vec<(f64, f64)> = Vec::new();
    let mut histograms = 0;
    for (name, labels, value) in samples {
        if name.ends_with("_bucket") {
            let le = labels.iter().find(|(label, _)| *label == "le");
            buckets.push((le.expect("a bound").1.parse().expect("a number"), *value));
        } else if name.ends_with("_seconds_count") {
            assert!(buckets.windows(2).all(|pair| pair[0].0 < pair[1].0));
            assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1));
            assert_eq!(buckets.last(), Some(&(f64::INFINITY, *value)));
            buckets.clear();
            histograms += 1;
        }
    }
    assert!(histograms > 0 && buckets.is_empty());
}

#[test]
fn prometheus_text_of_two_stores_keeps_the_format() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions::new().memory_budget(2 << 20);
    let full = Store::open(dir.path().join("full"), &options).unwrap();
    for part in 0..64u32 {
        let mut batch = WriteBatch::new();
        for nth in 0..256 {
            batch.put((part * 256 + nth).to_be_bytes(), [7; 300]);
        }
        full.write(batch).unwrap();
    }
    full.checkpoint().unwrap();
    assert_eq!(full.get(&3u32.to_be_bytes()).unwrap(), Some(vec![7; 300]));
    let empty = Store::open(dir.path().join("empty"), &StoreOptions::new()).unwrap();
    let name = "a \"name\"\\ of\ntwo lines";
    let (of_full, of_empty) = (full.stats(), empty.stats());
    let text = prometheus(&[(name, &of_full), ("empty", &of_empty)]);
    let samples = parse(&text);
    check_histograms(&samples);
    let of = |wanted: &str, store: &str, label: Option<(&str, &str)>| {
        let has = |labels: &[(&str, String)], name, value| {
            labels
                .iter()
                .any(|(label, found)| *label == name && found == value)
        };
        let mut found = samples.iter().filter(|(name, labels, _)| {
            *name == wanted
                && has(labels, "store", store)
                && label.is_none_or(|(name, value)| has(labels, name, value))
        });
        let value = found.next().expect("a sample").2;
        assert!(found.next().is_none(), "one sample");
        value
    };
    assert_eq!(of("gphash_keys", "empty", None), 0.0);
    assert_eq!(of("gphash_sequence", name, None), 64.0 * 256.0);
    let batches = of(
        "gphash_latency_seconds_count",
        name,
        Some(("path", "batch")),
    );
    assert_eq!(batches, 64.0);
    let took = of("gphash_latency_seconds_sum", name, Some(("path", "batch")));
    assert!(took > 0.0);
    let checkpoints = of("gphash_stalls_total", name, Some(("reason", "checkpoint")));
    assert!(checkpoints >= 1.0);
    assert!(
        of("gphash_items_evicted_total", name, None) > 0.0,
        "some have levels"
    );
    assert!(of("gphash_spill_file_bytes", name, Some(("level", "0"))) >= 0.0);
    assert_eq!(of("gphash_index_info", name, Some(("engine", "cpu"))), 1.0);
}

#[test]
fn prometheus_text_of_one_store_has_no_label_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &StoreOptions::new()).unwrap();
    store.put("ada", "lovelace").unwrap();
    let text = store.stats().to_prometheus();
    check_histograms(&parse(&text));
    assert!(
        text.contains("\ngphash_latency_seconds_count{path=\"change\"} 1\n"),
        "{text}"
    );
    assert!(!text.contains("store="));
}
