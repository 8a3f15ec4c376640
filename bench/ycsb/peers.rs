//! Tables that others have made, on the same workload: papaya, which keeps nothing, with the
//! hasher that it comes with and with the fastest one, and redb, which is durable at each commit
//! (one for a batch).

use std::hash::BuildHasher;
use std::path::Path;

use bytemuck::Pod;
use redb::{Database, ReadableDatabase, TableDefinition};

use crate::workload::plan::Words;
use crate::workload::target::{Done, Failure, Target, timed};

/// The volatile peer.
pub struct Papaya<K, V, S>(papaya::HashMap<K, V, S>);

/// A papaya table with room for `capacity` items and a hasher of its own choice (the standard
/// library's) or a faster one.
pub fn papaya<K, V, S: Default>(capacity: u64) -> Papaya<K, V, S> {
    let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
    Papaya(papaya::HashMap::with_capacity_and_hasher(
        capacity,
        S::default(),
    ))
}

impl<const K: usize, const V: usize, S> Target<Words<K>, Words<V>> for Papaya<Words<K>, Words<V>, S>
where
    S: BuildHasher + Sync,
{
    fn get(&self, keys: &[Words<K>], values: &mut [Words<V>]) -> Result<Done, Failure> {
        timed(|| {
            let map = self.0.pin();
            let mut found = 0;
            for (key, value) in keys.iter().zip(values) {
                if let Some(stored) = map.get(key) {
                    *value = *stored;
                    found += 1;
                }
            }
            Ok(found)
        })
    }

    fn insert(&self, keys: &[Words<K>], values: &[Words<V>]) -> Result<Done, Failure> {
        timed(|| {
            let map = self.0.pin();
            let pairs = keys.iter().zip(values);
            Ok(pairs
                .filter(|(key, value)| map.try_insert(**key, **value).is_ok())
                .count())
        })
    }

    fn update(&self, keys: &[Words<K>], values: &[Words<V>]) -> Result<Done, Failure> {
        timed(|| {
            let map = self.0.pin();
            let pairs = keys.iter().zip(values);
            Ok(pairs
                .filter(|(key, value)| map.update(**key, |_| **value).is_some())
                .count())
        })
    }

    fn remove(&self, keys: &[Words<K>]) -> Result<Done, Failure> {
        timed(|| {
            let map = self.0.pin();
            Ok(keys.iter().filter(|key| map.remove(*key).is_some()).count())
        })
    }
}

/// The persistent peer.
pub struct Redb(Database);

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

/// Memory that redb may cache pages in, so that it never reads one twice.
const CACHE: usize = 8 << 30;

impl Redb {
    /// A new database at `path`.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let database = Database::builder().set_cache_size(CACHE).create(path)?;
        let transaction = database.begin_write()?;
        transaction.open_table(TABLE)?;
        transaction.commit()?;
        Ok(Self(database))
    }

    /// One durable transaction; `write` says whether an operation on a key met it there.
    fn commit<K: Pod>(
        &self,
        keys: &[K],
        mut write: impl FnMut(&mut redb::Table<&[u8], &[u8]>, usize, &[u8]) -> Result<bool, Failure>,
    ) -> Result<usize, Failure> {
        let transaction = self.0.begin_write()?;
        let mut done = 0;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (position, key) in keys.iter().enumerate() {
                done += usize::from(write(&mut table, position, bytemuck::bytes_of(key))?);
            }
        }
        transaction.commit()?;
        Ok(done)
    }
}

impl<K: Pod + Sync, V: Pod + Sync> Target<K, V> for Redb {
    fn get(&self, keys: &[K], values: &mut [V]) -> Result<Done, Failure> {
        timed(|| {
            let table = self.0.begin_read()?.open_table(TABLE)?;
            let mut found = 0;
            for (key, value) in keys.iter().zip(values) {
                if let Some(stored) = table.get(bytemuck::bytes_of(key))? {
                    bytemuck::bytes_of_mut(value).copy_from_slice(stored.value());
                    found += 1;
                }
            }
            Ok(found)
        })
    }

    fn insert(&self, keys: &[K], values: &[V]) -> Result<Done, Failure> {
        timed(|| {
            self.commit(keys, |table, position, key| {
                let before = table.insert(key, bytemuck::bytes_of(&values[position]))?;
                Ok(before.is_none())
            })
        })
    }

    fn update(&self, keys: &[K], values: &[V]) -> Result<Done, Failure> {
        timed(|| {
            self.commit(keys, |table, position, key| {
                let before = table.insert(key, bytemuck::bytes_of(&values[position]))?;
                Ok(before.is_some())
            })
        })
    }

    fn remove(&self, keys: &[K]) -> Result<Done, Failure> {
        timed(|| self.commit(keys, |table, _, key| Ok(table.remove(key)?.is_some())))
    }
}
