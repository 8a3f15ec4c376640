//! What the GPU can do at most.

use cust::memory::DeviceBuffer;
use num_traits::ToPrimitive;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::cpu::Cpu;
use crate::kind::{Kind, Limit};
use crate::launch::{Access, Batches, Gpu, Registered};
use crate::limit::{fastest, one_after_another};
use crate::order::{Order, arrange};
use crate::places::{Layout, STRIDE, draw};
use crate::region::Region;
use crate::report::{Accesses, Finding, Rates, Report};
use crate::workload::distribution::{Distribution, Law};
use crate::workload::target::Failure;

/// Places of one measurement.
const PLACES: usize = 1 << 21;

/// Orders that batches are measured in.
const ORDERS: [Order; 5] = [
    Order::Random,
    Order::Bins(8),
    Order::Bins(10),
    Order::Bins(12),
    Order::Address,
];

/// Accesses whose order matters as it does for reads of 128 bytes, measured at both ends only.
const OTHERS: [Access; 5] = [
    Access::Read(8),
    Access::Read(32),
    Access::Read(64),
    Access::Write(8),
    Access::Write(128),
];

/// Bytes of device memory that are copied and read.
const DEVICE: u64 = 1 << 30;

/// A GPU, a region of host memory that it reaches, and memory of its own.
pub struct OnGpu<'r> {
    gpu: &'r Gpu,
    host: Registered<'r>,
    region: &'r Region,
    device: DeviceBuffer<u64>,
}

impl<'r> OnGpu<'r> {
    /// Pins the region. It must have [`DEVICE`] bytes.
    pub fn new(gpu: &'r Gpu, region: &'r Region) -> Result<Self, Failure> {
        if region.len() < DEVICE {
            return Err("less than 1 GiB of memory to measure in".into());
        }
        // SAFETY: it is copied to before anything is read.
        let device = unsafe { DeviceBuffer::uninitialized((DEVICE / 8) as usize)? };
        Ok(Self {
            gpu,
            host: Registered::new(region)?,
            region,
            device,
        })
    }

    /// Bandwidths, latencies and launches.
    pub fn single_figures(&self, report: &mut Report) -> Result<(), Failure> {
        report.step("bandwidths and latencies of the GPU");
        let (host, device) = (self.host.address(), self.device.as_device_ptr().as_raw());
        let cpu = Cpu {
            region: self.region,
            threads: 1,
        };
        let start = cpu.chain(DEVICE);
        let half = DEVICE / 2;
        // SAFETY: the region and the device's memory have `DEVICE` bytes, and the chain is copied
        // to where the device's begins.
        let figures = unsafe {
            let (there, back) = self.gpu.copy_over_bus(device, host, DEVICE)?;
            let chase = [self.gpu.chase(host, start)?, self.gpu.chase(device, start)?];
            let store = [
                self.gpu.store_and_fence(host)?,
                self.gpu.store_and_fence(device)?,
            ];
            let on_device = self.gpu.copy_on_device(device + half, device, half)?;
            [
                ("copy, host to device", there / 1e9, "GB/s"),
                ("copy, device to host", back / 1e9, "GB/s"),
                (
                    "copy in device memory, read and written",
                    on_device / 1e9,
                    "GB/s",
                ),
                ("dependent read, host", chase[0] / 1e3, "us"),
                ("dependent read, device", chase[1] / 1e3, "us"),
                ("store and system fence, host", store[0] / 1e3, "us"),
                ("store and system fence, device", store[1] / 1e3, "us"),
            ]
        };
        let (waited_for, back_to_back) = self.gpu.launch()?;
        let launches = [
            ("launch and synchronize", waited_for, "us"),
            ("launch, one of many back to back", back_to_back, "us"),
        ];
        for (what, value, unit) in figures.into_iter().chain(launches) {
            let what = format!("GPU, {what}");
            report.add(Finding::Figure { what, value, unit });
        }
        let places = self.batches(1 << 20, 0, DEVICE, STRIDE, Order::Random);
        // SAFETY: the places lie in the device's memory.
        let rate = unsafe { self.gpu.rate(Access::Read(32), device, &places)? };
        report.add(Finding::Accesses(Accesses {
            processor: "gpu",
            memory: "device",
            access: "read",
            bytes: 32,
            region_bytes: DEVICE,
            batch: Some(1 << 20),
            threads: None,
            mops: Rates(
                ORDERS
                    .map(|order| (order.name(), (order == Order::Random).then_some(rate)))
                    .to_vec(),
            ),
        }));
        Ok(())
    }

    /// Accesses to random places of host memory.
    pub fn places(
        &self,
        regions: &[u64],
        batches: &[usize],
        report: &mut Report,
    ) -> Result<(), Failure> {
        for &region in regions {
            for &batch in batches {
                report.step(format!("batches of {batch} in {} MiB", region >> 20));
                self.places_of(region, batch, report)?;
            }
        }
        Ok(())
    }

    fn places_of(&self, region: u64, batch: usize, report: &mut Report) -> Result<(), Failure> {
        let mut full = Vec::new();
        let mut others = OTHERS.map(|access| (access, Vec::new()));
        for order in ORDERS {
            let places = self.batches(batch, 0, region, STRIDE, order);
            let rate = self.on_host(Access::Read(128), &places)?;
            full.push((order.name(), Some(rate)));
            for (access, rates) in &mut others {
                let rate = match order {
                    Order::Bins(_) => None,
                    Order::Random | Order::Address => Some(self.on_host(*access, &places)?),
                };
                rates.push((order.name(), rate));
            }
        }
        let full = std::iter::once((Access::Read(128), full));
        for (access, rates) in full.chain(others) {
            let (name, bytes) = match access {
                Access::Read(bytes) => ("read", bytes),
                Access::Write(bytes) => ("write", bytes),
                Access::Update => ("update", 8),
                Access::Insert(key_bytes) => ("insert", 16 + key_bytes),
            };
            report.add(Finding::Accesses(Accesses {
                processor: "gpu",
                memory: "host",
                access: name,
                bytes,
                region_bytes: region,
                batch: Some(batch),
                threads: None,
                mops: Rates(rates),
            }));
        }
        Ok(())
    }

    /// The limits of a table that the region has room for, with a cache of this share of it.
    pub fn limits(
        &self,
        table: Layout,
        cache_ratio: f64,
        batches: &[usize],
        report: &mut Report,
    ) -> Result<Vec<Limit>, Failure> {
        let mut limits = Vec::new();
        let hot = Hot::new(table.records, cache_ratio);
        for &batch in batches {
            report.step(format!("limits of batches of {batch}"));
            let (uniform, how) = self.best(Access::Read(128), |order| {
                self.batches(batch, 0, table.records_len(), STRIDE, order)
            })?;
            let mut limit = |kind, mops, what| {
                let batch = Some(batch);
                limits.push(Limit {
                    kind,
                    batch,
                    mops,
                    what,
                });
            };
            limit(
                Kind::Uniform,
                uniform,
                format!("read 128 bytes a key, {how}"),
            );
            let (zipf, how) = self.best(Access::Read(128), |order| hot.misses(batch, order))?;
            let what =
                format!("read 128 bytes of each record that is not among the hottest, {how}");
            limit(Kind::Zipf, zipf, what);
            let (from, len) = (table.records_len(), table.buckets_len());
            let slots = |order| self.batches(batch, from, len, table.bucket(), order);
            let (update, how) = self.best(Access::Update, slots)?;
            limit(
                Kind::Update,
                update,
                format!("write 128 bytes in sequence and 1 word, {how}"),
            );
            let key_bytes = table.key_bytes();
            let (insert, how) = self.best(Access::Insert(u32::try_from(key_bytes)?), slots)?;
            let key = match key_bytes {
                0 => String::new(),
                bytes => format!(" and {bytes} bytes of a key"),
            };
            limit(
                Kind::Load,
                insert,
                format!("write 128 bytes in sequence, 2 words{key}, {how}"),
            );
            limit(
                Kind::Mixed,
                one_after_another(&[(0.5, zipf), (0.5, update)]),
                "half Zipf gets, half updates".into(),
            );
            let absent = self.absent(batch, table)?;
            limit(
                Kind::Absent,
                absent,
                "read 4 words of device memory a key".into(),
            );
        }
        Ok(limits)
    }

    /// The best rate over the orders, and which order that is.
    fn best(
        &self,
        access: Access,
        batches: impl Fn(Order) -> Batches,
    ) -> Result<(f64, String), Failure> {
        let rates = ORDERS
            .iter()
            .map(|&order| Ok((order, self.on_host(access, &batches(order))?)))
            .collect::<Result<Vec<(Order, f64)>, Failure>>()?;
        let (order, rate) = fastest(&rates).ok_or("no order")?;
        Ok((rate, format!("order {}", order.name())))
    }

    fn absent(&self, batch: usize, table: Layout) -> Result<f64, Failure> {
        let len = table.buckets_len().min(DEVICE);
        let places = self.batches(4 * batch, 0, len, table.bucket(), Order::Random);
        let base = self.device.as_device_ptr().as_raw();
        // SAFETY: the places lie in the device's memory.
        let reads = unsafe { self.gpu.rate(Access::Read(8), base, &places)? };
        Ok(reads / 4.0)
    }

    fn on_host(&self, access: Access, batches: &Batches) -> Result<f64, Failure> {
        // SAFETY: the places lie in the region, and so do as many records as a batch has places.
        unsafe { self.gpu.rate(access, self.host.address(), batches) }
    }

    /// Batches of random places in the `len` bytes from `from` on, `stride` bytes from each other.
    fn batches(&self, batch: usize, from: u64, len: u64, stride: u64, order: Order) -> Batches {
        let mut random = SmallRng::seed_from_u64(len ^ batch as u64);
        let mut batches = Batches::default();
        for _ in 0..(PLACES / batch).clamp(1, 256) {
            let mut places = draw(&mut random, batch, len, stride);
            arrange(&mut places, len, order);
            places.iter_mut().for_each(|place| *place += from);
            batches.push(&places, batch);
        }
        batches
    }
}

/// Zipf-distributed records, some of which need not be read.
struct Hot {
    law: Distribution,
    records: u64,
    cached: fixedbitset::FixedBitSet,
}

impl Hot {
    fn new(records: u64, cache_ratio: f64) -> Self {
        let law = Distribution::new(Law::Zipfian, records, 0.99);
        let mut cached = fixedbitset::FixedBitSet::with_capacity(usize::try_from(records).unwrap());
        for rank in 0..(records as f64 * cache_ratio).to_u64().unwrap_or_default() {
            cached.insert(usize::try_from(law.of_rank(rank)).unwrap());
        }
        Self {
            law,
            records,
            cached,
        }
    }

    /// Of batches of so many, the places of the records that are not cached, each once.
    fn misses(&self, batch: usize, order: Order) -> Batches {
        let mut random = SmallRng::seed_from_u64(batch as u64);
        let mut batches = Batches::default();
        let mut seen =
            fixedbitset::FixedBitSet::with_capacity(usize::try_from(self.records).unwrap());
        for _ in 0..(PLACES / batch).clamp(1, 256) {
            let mut places = Vec::new();
            for _ in 0..batch {
                let record = self.law.draw(&mut random, 0, 0);
                let at = usize::try_from(record).unwrap();
                if !self.cached.contains(at) && !seen.put(at) {
                    places.push(record * STRIDE);
                }
            }
            for place in &places {
                seen.remove((place / STRIDE) as usize);
            }
            arrange(&mut places, self.records * STRIDE, order);
            batches.push(&places, batch);
        }
        batches
    }
}
