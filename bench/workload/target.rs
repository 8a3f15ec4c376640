//! What a workload runs against.

use std::error::Error;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use gphash::Index;

/// Any failure, on any thread.
pub type Failure = Box<dyn Error + Send + Sync>;

/// What a batch did.
pub struct Done {
    /// Keys that were there (for `insert`: were not), so that a wrong answer is seen.
    pub count: usize,
    /// How long the verb took, without what only the bench needs.
    pub took: Duration,
}

/// Times a verb that says how many of its keys were there.
pub fn timed(verb: impl FnOnce() -> Result<usize, Failure>) -> Result<Done, Failure> {
    let began = Instant::now();
    let count = verb()?;
    Ok(Done {
        count,
        took: began.elapsed(),
    })
}

/// A table under test. Every verb takes one batch.
pub trait Target<K, V>: Sync {
    /// Inserts the records of the load phase.
    fn load(&self, keys: &[K], values: &[V]) -> Result<Done, Failure> {
        self.insert(keys, values)
    }

    /// Copies the values of the keys that are there to the same positions of `values`.
    fn get(&self, keys: &[K], values: &mut [V]) -> Result<Done, Failure>;

    /// Inserts the keys that are not there.
    fn insert(&self, keys: &[K], values: &[V]) -> Result<Done, Failure>;

    /// Gives the keys that are there new values.
    fn update(&self, keys: &[K], values: &[V]) -> Result<Done, Failure>;

    /// Removes the keys that are there.
    fn remove(&self, keys: &[K]) -> Result<Done, Failure>;
}

impl<K, V> Target<K, V> for Index<K, V>
where
    K: Pod + Send + Sync,
    V: Pod + Send + Sync,
{
    fn get(&self, keys: &[K], values: &mut [V]) -> Result<Done, Failure> {
        timed(|| Ok(Index::get(self, keys, values)?.count_ones(..)))
    }

    fn insert(&self, keys: &[K], values: &[V]) -> Result<Done, Failure> {
        timed(|| Ok(Index::insert(self, keys, values)?.count_ones(..)))
    }

    fn update(&self, keys: &[K], values: &[V]) -> Result<Done, Failure> {
        timed(|| Ok(Index::update(self, keys, values)?.count_ones(..)))
    }

    fn remove(&self, keys: &[K]) -> Result<Done, Failure> {
        timed(|| Ok(Index::remove(self, keys)?.count_ones(..)))
    }
}
