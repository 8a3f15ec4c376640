//! Which record an operation concerns: YCSB's request distributions.

use clap::ValueEnum;
use num_traits::ToPrimitive;
use rand::RngExt;
use rand::rngs::SmallRng;

/// The law that records are drawn by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Law {
    /// A few records are hot, spread over the table by a hash (YCSB's scrambled Zipfian).
    Zipfian,
    /// Every record alike.
    Uniform,
    /// The newest records are hot.
    Latest,
    /// Only a share of the records are asked for, spread over the table, each alike.
    Hotspot,
}

/// Draws record numbers below the number of records loaded.
pub struct Distribution {
    law: Law,
    records: u64,
    /// Records that are hot with [`Law::Hotspot`].
    spot: u64,
    zipf: Zipf,
}

impl Distribution {
    /// A distribution over `records` records; `theta` is the skew of the Zipfian ones, and the share of the hot spot.
    pub fn new(law: Law, records: u64, theta: f64) -> Self {
        Self {
            law,
            records,
            spot: (records as f64 * theta)
                .to_u64()
                .map_or(1, |spot| spot.max(1)),
            zipf: Zipf::new(records, theta),
        }
    }

    /// The record of a rank of [`Law::Zipfian`]; the hottest has rank 0.
    pub fn of_rank(&self, rank: u64) -> u64 {
        fnv(rank) % self.records
    }

    /// Draws a record. `inserted` counts the records that the drawing thread has added so far,
    /// numbered from `first`; with [`Law::Latest`] they are newer than all that were loaded.
    pub fn draw(&self, random: &mut SmallRng, first: u64, inserted: u64) -> u64 {
        match self.law {
            Law::Uniform => random.random_range(0..self.records),
            Law::Zipfian => self.of_rank(self.zipf.draw(random)),
            Law::Hotspot => self.of_rank(random.random_range(0..self.spot)),
            Law::Latest => {
                let age = self.zipf.draw(random);
                match inserted.checked_sub(age + 1) {
                    Some(newest) => first + newest,
                    None => self.records - 1 - (age - inserted),
                }
            }
        }
    }
}

/// Ranks below `items`, by the method of Gray et al., "Quickly Generating Billion-Record
/// Synthetic Databases" (SIGMOD '94), as in YCSB's `ZipfianGenerator`.
struct Zipf {
    items: u64,
    zeta: f64,
    second: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(items: u64, theta: f64) -> Self {
        let zeta = zeta(items, theta);
        let second = 1.0 + 0.5_f64.powf(theta);
        Self {
            items,
            zeta,
            second,
            alpha: 1.0 / (1.0 - theta),
            eta: (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - second / zeta),
        }
    }

    fn draw(&self, random: &mut SmallRng) -> u64 {
        let uniform: f64 = random.random();
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            0
        } else if scaled < self.second {
            1
        } else {
            let rank = self.items as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
            rank.to_u64().map_or(0, |rank| rank.min(self.items - 1))
        }
    }
}

/// The sum of 1/i^theta for i from 1 to `items`: the first terms one by one, the others by the
/// Euler-Maclaurin formula, whose error is then below one in 10^12.
fn zeta(items: u64, theta: f64) -> f64 {
    const EXACT: u64 = 1 << 16;
    let exact = items.min(EXACT);
    let head: f64 = (1..=exact).map(|rank| (rank as f64).powf(-theta)).sum();
    let (from, to) = (exact as f64, items as f64);
    let power = 1.0 - theta;
    let integral = (to.powf(power) - from.powf(power)) / power;
    let ends = (to.powf(-theta) - from.powf(-theta)) / 2.0;
    let slopes = theta / 12.0 * (from.powf(-theta - 1.0) - to.powf(-theta - 1.0));
    head + integral + ends + slopes
}

/// The 64-bit FNV-1a hash of the rank's bytes, which is how YCSB scatters the hot records.
fn fnv(rank: u64) -> u64 {
    rank.to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
}
