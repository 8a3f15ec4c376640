//! Where rows come from, and the ones that are kept for the lookups.

use std::error::Error;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::embedding::Row;
use crate::{criteo, generate};

/// Rows of a file or generated ones, streamed.
pub struct Rows {
    source: Source,
    limit: u64,
    taken: u64,
}

enum Source {
    File(criteo::Reader),
    Generated(generate::Rows),
}

/// Bytes of a line in the Criteo files, about.
const LINE: u64 = 240;

impl Rows {
    /// At most `limit` rows of the file.
    pub fn of_file(path: &Path, limit: Option<u64>) -> Result<Self, Box<dyn Error>> {
        let reader = criteo::Reader::open(path)?;
        Ok(Self {
            limit: limit.unwrap_or(u64::MAX),
            source: Source::File(reader),
            taken: 0,
        })
    }

    /// `limit` rows, the same on every run.
    pub fn generated(limit: u64) -> Self {
        Self {
            source: Source::Generated(generate::Rows::new()),
            limit,
            taken: 0,
        }
    }

    /// How many rows there will be, about: what a progress bar and the size of a new table
    /// start from.
    pub fn expected(&self) -> u64 {
        match &self.source {
            Source::File(reader) => self.limit.min(self.taken + reader.remaining() / LINE + 1),
            Source::Generated(_) => self.limit,
        }
    }
}

impl Iterator for Rows {
    type Item = Result<Row, Box<dyn Error>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.taken == self.limit {
            return None;
        }
        let row = match &mut self.source {
            Source::File(reader) => reader.next()?,
            Source::Generated(rows) => Ok(rows.next()?),
        };
        self.taken += 1;
        Some(row)
    }
}

/// Rows chosen evenly from all that were offered, so that a file of any length leaves a sample
/// that fits in memory.
pub struct Sample {
    /// The rows chosen so far.
    pub rows: Vec<Row>,
    offered: u64,
    random: SmallRng,
}

impl Sample {
    const LIMIT: usize = 1 << 18;

    pub fn new() -> Self {
        Self {
            rows: Vec::new(),
            offered: 0,
            random: SmallRng::seed_from_u64(1),
        }
    }

    pub fn offer(&mut self, row: &Row) {
        self.offered += 1;
        if self.rows.len() < Self::LIMIT {
            self.rows.push(*row);
            return;
        }
        let slot = usize::try_from(self.random.random_range(0..self.offered)).unwrap();
        if let Some(kept) = self.rows.get_mut(slot) {
            *kept = *row;
        }
    }
}
