use std::collections::{BTreeMap, HashMap};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::Error;
use crate::store::mvcc::old_versions::is_empty;
use crate::store::tests::seed;
use crate::table::item::Wanted;
use crate::width::low_byte;

/// The page that so many entries are enough for.
fn read(page: impl Fn(usize) -> Option<Page>) -> Page {
    (0..).find_map(page).unwrap()
}

/// Keys of three partitions that share fingerprints: there are only `many`.
struct Source {
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
    many: u64,
    damaged: Option<Vec<u8>>,
}

impl Source {
    fn id(&self, key: &[u8]) -> ItemId {
        let hash = xxh3_64(key);
        ItemId {
            table: low_byte(hash >> 32) % 3,
            fingerprint: hash % self.many,
        }
    }
}

impl Keys for Source {
    fn keys(&self, id: ItemId) -> Result<Vec<Vec<u8>>> {
        let is_it = |key: &&Vec<u8>| self.id(key) == id;
        Ok(self.keys.keys().rev().filter(is_it).cloned().collect())
    }

    fn lost(&self, id: ItemId) -> Error {
        panic!("nothing has the id {id:?}")
    }
}

impl Items for Source {
    fn visit(&self, ids: &[ItemId], sink: &mut impl Sink) -> Result<()> {
        for (nth, id) in ids.iter().enumerate() {
            let Some(key) = self.keys(*id)?.pop() else {
                continue;
            };
            let value = match sink.wanted(nth, &key, self.keys[&key].len() as u64) {
                Wanted::Item => self.keys[&key].clone(),
                Wanted::Key => Vec::new(),
                Wanted::End => break,
            };
            if self.damaged.as_ref() == Some(&key) {
                return Err(Error::Damaged {
                    path: "index".into(),
                    what: "item",
                    at: 0,
                    found: "another checksum".into(),
                });
            }
            sink.take(&key, || Some(value));
        }
        Ok(())
    }

    fn items(&self, id: ItemId, wanted: Wanted) -> Result<Vec<Item>> {
        let item = |key: Vec<u8>| {
            let value = match wanted {
                Wanted::Item => self.keys[&key].clone(),
                Wanted::Key | Wanted::End => Vec::new(),
            };
            (key, Some(value))
        };
        Ok(self.keys(id)?.into_iter().map(item).collect())
    }
}

/// A key such that many share long prefixes, and are told apart by zeros at the end.
fn any_key(rng: &mut SmallRng) -> Vec<u8> {
    let mut key = match rng.random_range(0..3) {
        0 => b"a long prefix that many share ".to_vec(),
        1 => b"a long pre".to_vec(),
        _ => Vec::new(),
    };
    let len = rng.random_range(0..10);
    key.extend((0..len).map(|_| b"\0\0\0a\xff"[rng.random_range(0..5)]));
    key
}

fn any_bound(rng: &mut SmallRng) -> Bound<Vec<u8>> {
    match rng.random_range(0..4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(any_key(rng)),
        _ => Bound::Included(any_key(rng)),
    }
}

fn check(view: &OrderedView, source: &Source, rng: &mut SmallRng) {
    let (start, end) = (any_bound(rng), any_bound(rng));
    let limits = (
        start.as_ref().map(Vec::as_slice),
        end.as_ref().map(Vec::as_slice),
    );
    if is_empty(&limits) {
        return;
    }
    let expected: Vec<Item> = source
        .keys
        .range::<[u8], _>(limits)
        .map(|(key, value)| (key.clone(), Some(value.clone())))
        .collect();
    let most = rng.random_range(1..20);
    let page = PageOf {
        range: limits,
        items: most,
        what: Wanted::Item,
    };
    let first = read(|entries| {
        let chunks = view.at_start(page.range, entries);
        chunks.first(page, source).unwrap()
    });
    let last = read(|entries| {
        let chunks = view.at_end(page.range, entries);
        chunks.last(page, source).unwrap()
    });
    let reversed: Vec<Item> = last.items.into_iter().rev().collect();
    let len = expected.len().min(most);
    assert_eq!(first.items, expected[..len]);
    assert_eq!(reversed, expected[expected.len() - len..]);
    for is_last in [first.is_last, last.is_last] {
        assert!(if is_last {
            expected.len() <= most
        } else {
            expected.len() >= most
        });
    }
}

fn update(view: &mut OrderedView, key: &[u8], id: ItemId, is_there: bool, source: &impl Keys) {
    if view.update(key, id, is_there, source).unwrap() == Size::Unfit {
        view.balance(key, source).unwrap();
    }
}

/// With one fingerprint for all keys, with a few, and with as many as there are keys.
#[test]
fn ordered_view_matches_a_sorted_map() {
    let seed = seed();
    for (round, many) in [1, 3, 40, u64::MAX, u64::MAX].into_iter().enumerate() {
        let mut rng = SmallRng::seed_from_u64(seed.wrapping_add(round as u64));
        let count = if round == 4 { 3000 } else { 150 };
        let keys = (0..rng.random_range(0..count)).map(|_| (any_key(&mut rng), vec![0]));
        let mut source = Source {
            keys: keys.collect(),
            many,
            damaged: None,
        };
        let sorted: Vec<(&[u8], ItemId)> = source
            .keys
            .keys()
            .map(|key| (key.as_slice(), source.id(key)))
            .collect();
        let mut view = OrderedView::of(&sorted);
        for nth in 0..count {
            let key = any_key(&mut rng);
            let id = source.id(&key);
            let is_there = rng.random_bool(if nth < count / 2 { 0.7 } else { 0.3 });
            if is_there {
                source.keys.insert(key.clone(), vec![low_byte(nth)]);
            } else {
                source.keys.remove(&key);
            }
            update(&mut view, &key, id, is_there, &source);
            check(&view, &source, &mut rng);
        }
    }
}

/// Keys of which no two share a fingerprint.
struct Random(HashMap<u64, [u8; 16]>);

impl Keys for Random {
    fn keys(&self, id: ItemId) -> Result<Vec<Vec<u8>>> {
        Ok(vec![self.0[&id.fingerprint].to_vec()])
    }

    fn lost(&self, id: ItemId) -> Error {
        panic!("nothing has the id {id:?}")
    }
}

#[test]
fn ordered_view_takes_at_most_sixteen_bytes_a_key() {
    let mut rng = SmallRng::seed_from_u64(1);
    let keys: Vec<[u8; 16]> = (0..200_000).map(|_| rng.random()).collect();
    let source = Random(keys.iter().map(|key| (xxh3_64(key), *key)).collect());
    let mut grown = OrderedView::of(&[]);
    let id = |key: &[u8; 16]| ItemId {
        table: key[0],
        fingerprint: xxh3_64(key),
    };
    for key in &keys {
        update(&mut grown, key, id(key), true, &source);
    }
    let mut sorted: Vec<(&[u8], ItemId)> =
        keys.iter().map(|key| (key.as_slice(), id(key))).collect();
    sorted.sort_unstable();
    // What a node of the map has for each chunk, on average, and the chunk with its two counts.
    let node =
        size_of::<(Box<[u8]>, Mutex<Arc<Chunk>>)>() * 3 / 2 + size_of::<(Chunk, [usize; 2])>();
    for view in [grown, OrderedView::of(&sorted)] {
        let separators: usize = view.chunks.keys().map(|separator| separator.len()).sum();
        let chunks: usize = view
            .chunks
            .values()
            .map(|chunk| chunk.lock().memory())
            .sum();
        let bytes = separators + chunks + view.chunks.len() * node;
        let each = bytes as f64 / keys.len() as f64;
        assert!(each <= 16.0, "{each} bytes a key");
        assert_eq!(view.len(), keys.len() as u64);
    }
}

#[test]
fn page_that_ends_with_a_chunk_needs_no_other() {
    let many = u64::MAX;
    let keys: Vec<Vec<u8>> = (0..3 * CHUNK_KEYS_INITIAL)
        .map(|key| key.to_be_bytes().to_vec())
        .collect();
    let items = keys.iter().map(|key| (key.clone(), vec![0]));
    let source = Source {
        keys: items.collect(),
        many,
        damaged: None,
    };
    let entries: Vec<(&[u8], ItemId)> = keys
        .iter()
        .map(|key| (key.as_slice(), source.id(key)))
        .collect();
    let view = OrderedView::of(&entries);
    let items = CHUNK_KEYS_INITIAL;
    let page = |range| PageOf {
        range,
        items,
        what: Wanted::Key,
    };
    let behind = page((Bound::Excluded(&keys[items - 1][..]), Bound::Unbounded));
    let first = view.at_start(behind.range, items).first(behind, &source);
    let first = first.unwrap().expect("the page is full");
    assert_eq!((first.items.len(), first.is_last), (items, false));
    let before = page((Bound::Unbounded, Bound::Excluded(&keys[2 * items][..])));
    let last = view.at_end(before.range, items).last(before, &source);
    let last = last.unwrap().expect("the page is full");
    assert_eq!((last.items.len(), last.is_last), (items, false));
}

/// From either end, also where the damaged key is the first one behind the range, as far as it can be told.
#[test]
fn page_ends_before_what_is_damaged() {
    let keys: Vec<Vec<u8>> = (0..10).map(|key| vec![key]).collect();
    let source = Source {
        keys: keys.iter().map(|key| (key.clone(), vec![0])).collect(),
        many: u64::MAX,
        damaged: Some(vec![5]),
    };
    let entries = keys.iter().map(|key| (key.as_slice(), source.id(key)));
    let view = OrderedView::of(&entries.collect::<Vec<_>>());
    let page = |range| PageOf {
        range,
        items: 10,
        what: Wanted::Item,
    };
    let first = |range| view.at_start(range, 10).first(page(range), &source);
    let last = |range| view.at_end(range, 10).last(page(range), &source);
    let found = |page: Page| {
        let keys = page.items.into_iter().map(|(key, _)| key[0]);
        (keys.collect::<Vec<u8>>(), page.is_last)
    };
    let up = |end| (Bound::Unbounded, end);
    for end in [Bound::Unbounded, Bound::Excluded(&[5][..])] {
        let page = first(up(end)).unwrap().expect("it has ended");
        assert_eq!(found(page), (vec![0, 1, 2, 3, 4], false));
    }
    let down = |start| (start, Bound::Unbounded);
    for start in [Bound::Unbounded, Bound::Excluded(&[5][..])] {
        let page = last(down(start)).unwrap().expect("it has ended");
        assert_eq!(found(page), (vec![9, 8, 7, 6], false));
    }
    let is_told = |page: Result<Option<Page>>| matches!(page, Err(Error::Damaged { .. }));
    assert!(is_told(first(down(Bound::Excluded(&[4])))));
    assert!(is_told(last(up(Bound::Excluded(&[6])))));
}
