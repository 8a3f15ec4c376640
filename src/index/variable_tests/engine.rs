//! An index of byte strings on an engine that is not the CPU's.

use std::borrow::Cow;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::{dir, options, try_open};
use crate::engine::bytes::BytesEngine;
use crate::engine::cpu::CpuEngine;
use crate::index::bytes::BytesIndex;
use crate::pm::{Entry, Mapping};
use crate::table::Table;
use crate::table::item::{Found, Item, ItemId, Mutation, Wanted};
use crate::table::maintenance::Maintainer;
use crate::{Engine, Error, Result};

/// Refuses every batch.
struct Refusing;

const DEVICE: Engine = Engine::Cuda { device: 7 };

fn refused<T>() -> Result<T> {
    Err(Error::Gpu {
        what: "running a batch",
        found: "nothing".into(),
        expected: "no batch".into(),
    })
}

impl BytesEngine for Refusing {
    fn engine(&self) -> Engine {
        DEVICE
    }

    fn maintain(&self, table: &Arc<Table<Mapping>>) -> Maintainer<Mapping> {
        CpuEngine::maintain(table)
    }

    fn get(&self, _: &Table<Mapping>, _: &[u8], _: &mut Vec<u8>) -> Result<Option<u64>> {
        refused()
    }

    fn get_many(
        &self,
        _: &Table<Mapping>,
        _: &[&[u8]],
        _: impl FnMut(usize, u64, Cow<'_, [u8]>),
    ) -> Result<()> {
        refused()
    }

    fn get_many_of<'t, 'k>(
        &self,
        _: impl Fn(u8) -> &'t Table<Mapping>,
        _: &[u8],
        _: impl Fn(usize) -> &'k [u8],
        _: impl FnMut(usize, u64, Cow<'_, [u8]>),
    ) -> Result<()> {
        refused()
    }

    fn get_hinted(
        &self,
        _: &Table<Mapping>,
        _: &[&[u8]],
        _: &[u64],
        _: impl FnMut(usize, u64, Cow<'_, [u8]>),
    ) -> Result<()> {
        refused()
    }

    fn copy_many(
        &self,
        _: &Table<Mapping>,
        _: &[&[u8]],
        _: impl FnMut(usize, Result<(u64, &[u8])>),
    ) -> Result<()> {
        refused()
    }

    fn sequences(&self, _: &Table<Mapping>, _: &[&[u8]], _: impl FnMut(usize, u64)) -> Result<()> {
        refused()
    }

    fn find(&self, _: &Table<Mapping>, _: u64, _: Wanted) -> Result<Vec<Item>> {
        refused()
    }

    fn find_many<'t>(
        &self,
        _: impl Fn(u8) -> &'t Table<Mapping>,
        _: &[ItemId],
        _: &mut impl Found,
    ) -> Result<()> {
        refused()
    }

    fn apply(&self, _: &Table<Mapping>, _: &[Mutation]) -> Result<FixedBitSet> {
        refused()
    }
}

/// Wants nothing.
struct Nothing;

impl Found for Nothing {
    fn wanted(&mut self, _: usize, _: &[u8], _: u64) -> Wanted {
        Wanted::End
    }

    fn take(&mut self, _: &[u8], _: u64, _: &mut Vec<u8>) {
        unreachable!("nothing was wanted")
    }
}

#[test]
fn batch_goes_to_the_engine() {
    let dir = dir();
    let path = dir.path().join("index");
    let entry = Entry::at(&path, None).unwrap();
    let (index, recovery) = BytesIndex::open_or_create_on(Refusing, &entry, &options()).unwrap();
    assert!(recovery.created);
    assert_eq!(index.stats().engine, DEVICE);
    let keys: [&[u8]; 1] = [b"key"];
    let change = Mutation::Put {
        key: b"key",
        value: b"value",
        sequence: 1,
    };
    let outcomes = [
        index.apply(&[change]).map(drop),
        index.get(keys[0], |_, _| ()).map(drop),
        index.get_many(&keys, &[], |_, _, _| ()),
        index.copy_many(&keys, |_, _| ()),
        index.sequences(&keys, |_, _| ()),
        index
            .find(index.fingerprint(keys[0]), Wanted::Key)
            .map(drop),
        BytesIndex::find_many(
            |_| &index,
            &[ItemId {
                table: 0,
                fingerprint: index.fingerprint(keys[0]),
            }],
            &mut Nothing,
        ),
    ];
    for (nth, outcome) in outcomes.iter().enumerate() {
        assert!(
            matches!(outcome, Err(Error::Gpu { .. })),
            "{nth}: {outcome:?}"
        );
    }
    index.close().unwrap();
    // Which engine closed a file makes no difference to the next.
    let (index, recovery) = try_open(&path).unwrap();
    assert!(recovery.clean && index.len() == 0);
    assert_eq!(index.stats().engine, Engine::Cpu);
}
