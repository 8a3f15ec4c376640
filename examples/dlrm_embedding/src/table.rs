//! What is done with the table: fill it, look bags up, check everything that comes out.

use std::error::Error;
use std::time::{Duration, Instant};

use gphash::Index;
use indicatif::ProgressBar;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::embedding::{DIMENSION, FEATURES, Row, Vector, pool, same, vector};
use crate::rows::{Rows, Sample};

/// The embedding table: a category's key leads to its vector.
pub type Table = Index<u64, Vector>;

/// What was compared, and what differed.
#[derive(Default)]
pub struct Check {
    /// Vectors compared.
    pub vectors: u64,
    /// Answers that were not what they had to be.
    pub mismatches: u64,
    /// The first of them, in words.
    pub first: Option<String>,
}

impl Check {
    /// Counts a mismatch unless `right`.
    pub fn expect(&mut self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.mismatches += 1;
            self.first.get_or_insert_with(what);
        }
    }
}

/// Streams `rows` into the table: every category that is new gets its vector. Returns the
/// number of rows.
pub fn fill(
    table: &Table,
    rows: &mut Rows,
    batch: usize,
    sample: &mut Sample,
    check: &mut Check,
    bar: &ProgressBar,
) -> Result<u64, Box<dyn Error>> {
    let before = table.len();
    let mut inserted = 0;
    let mut total = 0;
    let mut bags: Vec<Row> = Vec::with_capacity(batch);
    let mut absent: Vec<u64> = Vec::new();
    let mut vectors: Vec<Vector> = Vec::new();
    loop {
        bags.clear();
        for row in rows.by_ref().take(batch) {
            let row = row?;
            sample.offer(&row);
            bags.push(row);
        }
        if bags.is_empty() {
            break;
        }
        let keys = bags.as_flattened();
        let present = table.contains(keys)?;
        absent.clear();
        absent.extend(
            keys.iter()
                .enumerate()
                .filter(|(position, _)| !present.contains(*position))
                .map(|(_, key)| key),
        );
        vectors.clear();
        vectors.extend(absent.iter().map(|key| vector(*key)));
        // A category that is new twice in a batch is inserted once: the first one wins.
        inserted += table.insert(&absent, &vectors)?.count_ones(..) as u64;
        total += bags.len() as u64;
        bar.set_length(rows.expected());
        bar.set_position(total);
    }
    check.expect(table.len() == before + inserted, || {
        format!(
            "{} items; {before} and {inserted} inserted ones expected",
            table.len()
        )
    });
    Ok(total)
}

/// How long the batches of lookups took.
#[derive(Default)]
pub struct Timing {
    batches: Vec<Duration>,
    /// Vectors looked up.
    pub lookups: u64,
}

impl Timing {
    /// Vectors looked up and pooled in a second.
    pub fn lookups_per_second(&self) -> f64 {
        let busy: Duration = self.batches.iter().sum();
        self.lookups as f64 / busy.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The latency in microseconds that `percent` of the batches stay within.
    pub fn percentile_us(&mut self, percent: usize) -> f64 {
        self.batches.sort_unstable();
        let rank = (self.batches.len() * percent)
            .div_ceil(100)
            .saturating_sub(1);
        self.batches
            .get(rank)
            .map_or(0.0, |batch| batch.as_secs_f64() * 1e6)
    }
}

/// Looks up and sum-pools bags of `sample`, `batch` bags at a time, until `bags` are done, and
/// compares each vector and each sum. Only lookup and pooling are timed.
pub fn lookup(
    table: &Table,
    sample: &[Row],
    bags: u64,
    batch: usize,
    timing: &mut Timing,
    check: &mut Check,
    bar: &ProgressBar,
) -> Result<(), Box<dyn Error>> {
    let mut random = SmallRng::seed_from_u64(timing.lookups);
    let mut batch_bags: Vec<Row> = Vec::with_capacity(batch);
    let mut vectors: Vec<Vector> = Vec::new();
    let mut sums: Vec<Vector> = Vec::new();
    let mut done = 0;
    while done < bags {
        let size = batch.min(usize::try_from(bags - done).unwrap_or(usize::MAX));
        batch_bags.clear();
        batch_bags.extend((0..size).map(|_| sample[random.random_range(0..sample.len())]));
        let keys = batch_bags.as_flattened();
        vectors.clear();
        // Not a number that any vector holds, so that a vector left untouched is seen.
        vectors.resize(keys.len(), [f32::NAN; DIMENSION]);
        sums.clear();

        let start = Instant::now();
        let found = table.get(keys, &mut vectors)?;
        sums.extend(vectors.chunks_exact(FEATURES).map(pool));
        timing.batches.push(start.elapsed());

        timing.lookups += keys.len() as u64;
        check_bags(&batch_bags, &vectors, &sums, check);
        check.expect(found.count_ones(..) == keys.len(), || {
            format!("{} of {} keys found", found.count_ones(..), keys.len())
        });
        done += size as u64;
        bar.set_position(done);
    }
    Ok(())
}

fn check_bags(bags: &[Row], vectors: &[Vector], sums: &[Vector], check: &mut Check) {
    for ((bag, vectors), sum) in bags.iter().zip(vectors.chunks_exact(FEATURES)).zip(sums) {
        let expected = bag.map(vector);
        for ((key, found), expected) in bag.iter().zip(vectors).zip(&expected) {
            check.vectors += 1;
            check.expect(same(found, expected), || {
                format!("the vector of key {key:#x}")
            });
        }
        check.expect(same(sum, &pool(&expected)), || {
            format!("the sum of bag {bag:x?}")
        });
    }
}

/// Compares every vector in the table, and looks for keys that no row can have.
pub fn check_all(
    table: &Table,
    items: u64,
    check: &mut Check,
    bar: &ProgressBar,
) -> Result<(), Box<dyn Error>> {
    const ABSENT: u64 = 10_000;
    let mut seen = 0;
    for (key, found) in table.iter() {
        seen += 1;
        check.vectors += 1;
        check.expect(same(&found, &vector(key)), || {
            format!("the vector of key {key:#x}")
        });
        if seen % 4096 == 0 {
            bar.set_position(seen);
        }
    }
    check.expect(seen == items && table.len() == items, || {
        format!(
            "{seen} items seen and {} counted; {items} expected",
            table.len()
        )
    });
    let absent: Vec<u64> = (0..ABSENT).map(|number| u64::MAX - number).collect();
    let found = table.contains(&absent)?.count_ones(..);
    check.expect(found == 0, || {
        format!("{found} keys found that were never stored")
    });
    Ok(())
}
