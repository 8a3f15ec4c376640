//! Rows drawn as a Criteo file would hold them.
//!
//! Each feature has the number of categories that the Kaggle set of Criteo is published with,
//! and a skew measured on a sample of its rows: the share of rows that lack the feature, and a
//! shifted Zipf law of the others, which gives the category of rank *r* (from 0) a weight of
//! (r + shift)^-exponent, integrated from *r* to *r* + 1. Exponent and shift were fitted to two
//! figures of 324 rows: how many categories occur, and how likely two rows share one.

use num_traits::ToPrimitive;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::embedding::{FEATURES, Row, key, mix32};

/// How often the categories of a feature occur.
struct Feature {
    /// Categories in the whole Kaggle set, the missing one among them.
    categories: u32,
    /// Rows in a thousand that lack the feature.
    missing: u32,
    exponent: f64,
    shift: f64,
}

const fn feature(categories: u32, missing: u32, exponent: f64, shift: f64) -> Feature {
    Feature {
        categories,
        missing,
        exponent,
        shift,
    }
}

const KAGGLE: [Feature; FEATURES] = [
    feature(1_460, 0, 2.13, 1.2),
    feature(583, 0, 1.38, 3.4),
    feature(10_131_227, 46, 1.03, 0.26),
    feature(2_202_608, 46, 1.08, 0.45),
    feature(305, 0, 2.89, 1.3),
    feature(24, 108, 4.00, 2.9),
    feature(12_517, 0, 1.02, 13.0),
    feature(633, 0, 2.19, 0.87),
    feature(3, 0, 2.75, 0.37),
    feature(93_145, 0, 1.05, 0.082),
    feature(5_683, 0, 1.01, 6.7),
    feature(8_351_593, 46, 1.03, 0.30),
    feature(3_194, 0, 1.05, 7.0),
    feature(27, 0, 4.00, 4.4),
    feature(14_992, 0, 1.05, 3.1),
    feature(5_461_306, 46, 1.05, 0.42),
    feature(10, 0, 1.57, 1.6),
    feature(5_652, 0, 1.34, 7.8),
    feature(2_173, 512, 1.12, 0.018),
    feature(4, 512, 0.00, 1.0),
    feature(7_046_547, 46, 1.04, 0.34),
    feature(18, 833, 4.00, 2.7),
    feature(15, 0, 4.00, 5.3),
    feature(286_181, 46, 1.19, 0.87),
    feature(105, 512, 3.01, 3.7),
    feature(142_572, 512, 1.11, 1.7),
];

impl Feature {
    fn draw(&self, random: &mut SmallRng) -> Option<u32> {
        if self.missing > 0 && random.random_range(0..1000) < self.missing {
            return None;
        }
        let present = self.categories - u32::from(self.missing > 0);
        // The inverse of the integral of (x + shift)^-exponent over 0..present.
        let power = 1.0 - self.exponent;
        let first = self.shift.powf(power);
        let last = (f64::from(present) + self.shift).powf(power);
        let quantile = first + random.random::<f64>() * (last - first);
        let rank = quantile.powf(1.0 / power) - self.shift;
        Some(rank.to_u32().map_or(0, |rank| rank.min(present - 1)))
    }
}

/// Draws rows without end.
pub struct Rows {
    random: SmallRng,
}

impl Rows {
    /// The same rows on every run.
    pub fn new() -> Self {
        Self {
            random: SmallRng::seed_from_u64(0x0c21_7e00),
        }
    }
}

impl Iterator for Rows {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        Some(std::array::from_fn(|number| {
            let rank = KAGGLE[number].draw(&mut self.random);
            // Categories are hashes in the files, spread over all 32 bits; the mix is one to one.
            let feature = u32::try_from(number).expect("features are few");
            key(number, rank.map(|rank| mix32(rank ^ feature << 27)))
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Categories that occur in 324 rows of the Kaggle set, the missing one among them.
    const OCCURRING: [usize; FEATURES] = [
        28, 111, 230, 199, 14, 7, 265, 22, 2, 196, 240, 226, 223, 12, 226, 220, 9, 171, 57, 4, 223,
        6, 10, 158, 19, 115,
    ];

    #[test]
    fn categories_are_as_many_as_in_the_sample() {
        const SAMPLES: usize = 40;
        let mut rows = Rows::new();
        let mut occurring = [0; FEATURES];
        for _ in 0..SAMPLES {
            let sample: Vec<Row> = rows.by_ref().take(324).collect();
            for (number, occurring) in occurring.iter_mut().enumerate() {
                let keys: HashSet<u64> = sample.iter().map(|row| row[number]).collect();
                *occurring += keys.len();
            }
        }
        for (number, (total, measured)) in occurring.iter().zip(OCCURRING).enumerate() {
            let mean = *total as f64 / SAMPLES as f64;
            let measured = measured as f64;
            // The few categories of a small feature weigh one each; the fit minds their shares.
            let tolerance = (measured * 0.12).max(6.0);
            assert!(
                (mean - measured).abs() <= tolerance,
                "feature {}: {mean} categories, measured {measured}",
                number + 1
            );
        }
    }

    #[test]
    fn category_is_below_the_category_count() {
        let mut random = SmallRng::seed_from_u64(1);
        for feature in &KAGGLE {
            for _ in 0..10_000 {
                let rank = feature.draw(&mut random);
                assert!(rank.is_none_or(|rank| rank < feature.categories));
            }
        }
    }
}
