//! What the CPU can do at most.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::kind::{Kind, Limit};
use crate::limit::{fastest, one_after_another};
use crate::places::{Layout, STRIDE, draw};
use crate::region::Region;
use crate::report::{Accesses, Finding, Rates, Report};
use crate::workload::distribution::{Distribution, Law};

/// How many places are asked for ahead of the one that is read.
const AHEAD: [usize; 5] = [0, 4, 8, 16, 32];

/// Random places that a thread reads in one measurement.
const READS: usize = 1 << 20;

/// The machine's memory, as its CPU sees it.
pub struct Cpu<'r> {
    pub region: &'r Region,
    pub threads: usize,
}

impl Cpu<'_> {
    /// Steps of [`measure`](Self::measure) for so many regions.
    pub fn steps(regions: usize) -> usize {
        2 + 2 * regions
    }

    /// Bandwidth, latency, and random reads by the size of the region.
    pub fn measure(&self, regions: &[u64], report: &mut Report) {
        let counts = if self.threads > 1 {
            vec![1, self.threads]
        } else {
            vec![1]
        };
        report.step("bandwidth of the CPU");
        for &threads in &counts {
            report.add(Finding::Figure {
                what: format!("CPU, reads in sequence, {threads} threads"),
                value: self.bandwidth(threads) / 1e9,
                unit: "GB/s",
            });
        }
        report.step("latency of the CPU");
        for &region in regions {
            report.add(Finding::Figure {
                what: format!("CPU, dependent read in {} MiB", region >> 20),
                value: self.latency(region).as_secs_f64() * 1e9,
                unit: "ns",
            });
        }
        for &region in regions {
            for &threads in &counts {
                report.step(format!("random reads of the CPU in {} MiB", region >> 20));
                let places = self.uniform(threads, 0, region, STRIDE);
                let rates = AHEAD.map(|ahead| {
                    let rate = self.reads(&places, ahead, STRIDE);
                    (ahead.to_string(), Some(rate))
                });
                report.add(Finding::Accesses(Accesses {
                    processor: "cpu",
                    memory: "host",
                    access: "read",
                    bytes: u32::try_from(STRIDE).unwrap(),
                    region_bytes: region,
                    batch: None,
                    threads: Some(threads),
                    mops: Rates(rates.to_vec()),
                }));
            }
        }
    }

    /// The limits of a table.
    pub fn limits(&self, table: Layout) -> Vec<Limit> {
        let (all, buckets) = (table.records_len(), table.buckets_len());
        let best = |places: &[Vec<u64>], bytes| {
            let rates = AHEAD.map(|ahead| (ahead, self.reads(places, ahead, bytes)));
            fastest(&rates).map_or(0.0, |(_, rate)| rate)
        };
        let record = best(&self.uniform(self.threads, 0, all, STRIDE), STRIDE);
        let bucket = self.uniform(self.threads, all, buckets, table.bucket());
        let bucket = best(&bucket, STRIDE);
        let tags = table.buckets() * 8;
        let tag = best(&self.uniform(self.threads, all, tags, STRIDE), 8);
        let hot_record = best(&self.zipfian(table.records, 0), STRIDE);
        let written = self.bandwidth(self.threads) / STRIDE as f64 / 1e6;
        let in_bucket = if table.key_bytes() > 0 { 2.0 } else { 1.0 };
        let get = one_after_another(&[(in_bucket, bucket), (1.0, record)]);
        let hot_get = one_after_another(&[(in_bucket + 1.0, hot_record)]);
        let change = one_after_another(&[(in_bucket, bucket), (1.0, written)]);
        let limit = |kind, mops, what: &str| Limit {
            kind,
            batch: None,
            mops,
            what: what.into(),
        };
        vec![
            limit(
                Kind::Uniform,
                get,
                "read 1 bucket (2 places if its keys stand apart) and 1 record",
            ),
            limit(
                Kind::Zipf,
                hot_get,
                "read as many places drawn by the same law",
            ),
            limit(Kind::Absent, tag / 4.0, "read 4 words of tags"),
            limit(
                Kind::Update,
                change,
                "read 1 bucket, write 1 record in sequence",
            ),
            limit(
                Kind::Load,
                change,
                "read 1 bucket, write 1 record in sequence",
            ),
            limit(
                Kind::Mixed,
                one_after_another(&[(0.5, hot_get), (0.5, change)]),
                "half Zipf gets, half updates",
            ),
        ]
    }

    /// Bytes a second that the threads read in sequence together.
    fn bandwidth(&self, threads: usize) -> f64 {
        let words = self.region.words();
        let words = &words[..words.len().min((1 << 30) / 8)];
        let parts: Vec<&[AtomicU64]> = words.chunks(words.len().div_ceil(threads)).collect();
        let took = together(&parts, |part| sum(part));
        (words.len() * 8) as f64 / took.as_secs_f64()
    }

    /// Time of a read whose address the read before it gave.
    fn latency(&self, region: u64) -> Duration {
        const HOPS: u32 = 1 << 17;
        let start = self.chain(region);
        let words = self.region.words();
        let began = Instant::now();
        let mut place = start;
        for _ in 0..HOPS {
            place = words[usize::try_from(place).unwrap() / 8].load(Ordering::Relaxed);
        }
        let took = began.elapsed();
        std::hint::black_box(place);
        took / HOPS
    }

    /// Writes the offset of the next of some random places of the region to each of them; gives
    /// one of them.
    pub fn chain(&self, region: u64) -> u64 {
        let mut random = SmallRng::seed_from_u64(region);
        let mut places = draw(&mut random, 1 << 18, region, STRIDE);
        places.sort_unstable();
        places.dedup();
        places.shuffle(&mut random);
        let words = self.region.words();
        let next = places.iter().cycle().skip(1);
        for (place, next) in places.iter().zip(next) {
            words[usize::try_from(*place).unwrap() / 8].store(*next, Ordering::Relaxed);
        }
        places[0]
    }

    fn uniform(&self, threads: usize, from: u64, len: u64, stride: u64) -> Vec<Vec<u64>> {
        (0..threads as u64)
            .map(|thread| {
                let mut places = draw(&mut SmallRng::seed_from_u64(thread), READS, len, stride);
                places.iter_mut().for_each(|place| *place += from);
                places
            })
            .collect()
    }

    fn zipfian(&self, records: u64, from: u64) -> Vec<Vec<u64>> {
        let law = Distribution::new(Law::Zipfian, records, 0.99);
        (0..self.threads as u64)
            .map(|thread| {
                let mut random = SmallRng::seed_from_u64(thread);
                let mut place = || from + law.draw(&mut random, 0, 0) * STRIDE;
                (0..READS).map(|_| place()).collect()
            })
            .collect()
    }

    /// Million random reads a second of so many bytes, one list of places a thread.
    fn reads(&self, places: &[Vec<u64>], ahead: usize, bytes: u64) -> f64 {
        let words = self.region.words();
        let width = usize::try_from(bytes).unwrap() / 8;
        let took = together(places, |places| {
            let coming = places.iter().skip(ahead).chain(places.iter().cycle());
            let mut total = 0;
            for (place, coming) in places.iter().zip(coming) {
                if ahead > 0 {
                    prefetch(&words[usize::try_from(*coming).unwrap() / 8..][..width]);
                }
                total += sum(&words[usize::try_from(*place).unwrap() / 8..][..width]);
            }
            total
        });
        let reads: usize = places.iter().map(Vec::len).sum();
        reads as f64 / took.as_secs_f64() / 1e6
    }
}

/// Runs `work` on each part, each on its own thread, all at once; gives how long the last took.
fn together<T: Sync>(parts: &[T], work: impl Fn(&T) -> u64 + Sync) -> Duration {
    let barrier = Barrier::new(parts.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts
            .iter()
            .map(|part| {
                scope.spawn(|| {
                    barrier.wait();
                    let began = Instant::now();
                    std::hint::black_box(work(part));
                    began.elapsed()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .max()
            .unwrap_or_default()
    })
}

fn sum(words: &[AtomicU64]) -> u64 {
    words
        .iter()
        .fold(0, |sum, word| sum ^ word.load(Ordering::Relaxed))
}

/// Asks for the lines of some words.
fn prefetch(words: &[AtomicU64]) {
    const LINE: usize = 8;
    for line in words.chunks(LINE) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch of memory that is mapped; it changes nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        std::hint::black_box(line);
    }
}
