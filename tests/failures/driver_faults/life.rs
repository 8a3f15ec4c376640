//! A life of an index, and what it must hold whichever calls fail.

use std::collections::HashMap;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use gphash::{AddressOrder, Domain, Engine, Error, Index, Options};

use crate::driver::{Driver, Fault};

/// Values of short batches.
pub type Narrow = [u8; 16];

/// Values of batches that threads of the host copy: over a mebibyte of them in a batch.
pub type Wide = [u64; 4096];

/// A value, made of a number.
pub trait Value: Pod + PartialEq + Debug {
    fn of(number: u64) -> Self {
        let mut value = Self::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut value);
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        let last = bytes.len() - 8;
        bytes[last..].copy_from_slice(&number.to_le_bytes());
        value
    }
}

impl Value for Narrow {}

impl Value for Wide {}

/// Operations of a batch: few, as a life is lived once for every call of the driver.
const BATCH: u64 = 40;

/// What came of some lives.
#[derive(Debug, Default)]
pub struct Outcome {
    pub lives: u64,
    /// Calls of the driver.
    pub calls: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// Calls of the index that failed.
    pub errors: u64,
    /// Lives that ended on the CPU.
    pub on_cpu: u64,
}

impl Outcome {
    pub fn add(&mut self, other: &Self) {
        self.lives += other.lives;
        self.calls += other.calls;
        self.failures += other.failures;
        self.errors += other.errors;
        self.on_cpu += other.on_cpu;
    }
}

/// What a key may have: one of these, `None` for nothing.
type Model<V> = HashMap<u64, Vec<Option<V>>>;

/// A kind of life.
pub struct Life<V> {
    path: PathBuf,
    domain: Domain,
    values: PhantomData<V>,
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    Insert,
    Upsert,
    Update,
    Remove,
}

/// A life while it lasts.
struct Running<'l, V: Value> {
    driver: &'l Driver,
    fault: Fault,
    model: Model<V>,
    errors: u64,
    life: &'l Life<V>,
}

impl<V: Value> Life<V> {
    pub fn new(folder: &Path, domain: Domain) -> Self {
        Self {
            path: folder.join("index"),
            domain,
            values: PhantomData,
        }
    }

    fn options(&self, engine: Engine) -> Options {
        Options::new()
            .capacity(2 * BATCH)
            .domain(self.domain)
            .engine(engine)
            .address_order(AddressOrder::Always)
            .cache_ratio(0.5)
            .cache_period(None)
    }

    /// Lives from a creation to a closing and a further opening, while calls fail.
    pub fn live(&self, driver: &Driver, fault: Fault) -> Outcome {
        let _ = std::fs::remove_file(&self.path);
        let strays = driver.strays();
        driver.arm(fault);
        let mut running = Running {
            driver,
            fault,
            model: Model::new(),
            errors: 0,
            life: self,
        };
        let on_cpu = running.run();
        let (calls, failures) = (driver.calls(), driver.failures());
        driver.arm(Fault::NEVER);
        assert_eq!(driver.strays(), strays, "launches of memory out of reach");
        let left = driver.current();
        assert!(fault.is_for_good() || left.is_null(), "left current");
        driver.set_current(std::ptr::null_mut());
        if self.path.exists() {
            let index = self.reopen(Engine::Cpu);
            running.check(&index, "reopened on the CPU");
            index.close().unwrap();
        }
        Outcome {
            lives: 1,
            calls,
            failures,
            errors: running.errors,
            on_cpu: on_cpu.into(),
        }
    }

    fn reopen(&self, engine: Engine) -> Index<u64, V> {
        Index::open(&self.path, &self.options(engine)).unwrap()
    }
}

impl<V: Value> Running<'_, V> {
    /// Whether the index ended on the CPU.
    fn run(&mut self) -> bool {
        let life = self.life;
        let options = life.options(Engine::Cuda { device: 0 });
        let created = self.attempt(2, "create", || Index::create(&life.path, &options));
        let Some(index) = created else {
            assert!(self.fault.is_for_good());
            assert!(!life.path.exists(), "a creation that failed leaves nothing");
            return false;
        };
        let batch = |first: u64| (first * BATCH + 1..=(first + 1) * BATCH).collect::<Vec<_>>();
        for nth in 0..4 {
            self.change(&index, Verb::Insert, &batch(nth), 0);
        }
        self.look(&index, "while it grows");
        self.change(&index, Verb::Upsert, &[batch(3), batch(4)].concat(), 1);
        // Equal keys, next to each other and apart.
        let equal = [&batch(0)[..20], &batch(0)[..20], &[7, 7, 7]].concat();
        self.change(&index, Verb::Update, &equal, 2);
        self.change(&index, Verb::Remove, &batch(1), 0);
        let cached = self.attempt(2, "reload_cache", || index.reload_cache());
        assert!(cached.is_some());
        self.look(&index, "out of the cache");
        let reserved = self.attempt(2, "reserve", || index.reserve(8 * BATCH));
        assert!(reserved.is_some());
        self.look(&index, "after room was reserved");
        let synced = self.attempt(2, "sync", || index.sync());
        assert!(synced.is_some());
        for nth in 5..8 {
            self.change(&index, Verb::Insert, &batch(nth), 3);
        }
        self.change(&index, Verb::Upsert, &batch(1), 4);
        self.look(&index, "before it is closed");
        let on_cpu = index.stats().engine == Engine::Cpu;
        assert!(!on_cpu || self.driver.failures() > 0);
        self.check(&index, "before it is closed");
        index.close().unwrap();
        let opened = self.attempt(2, "open", || Index::open(&life.path, &options));
        let Some(index) = opened else {
            assert!(self.fault.is_for_good());
            return on_cpu;
        };
        self.look(&index, "opened again");
        self.change(&index, Verb::Remove, &batch(5), 0);
        // As after a kill: recovered by the device.
        self.check_copy(&options);
        let on_cpu = on_cpu || index.stats().engine == Engine::Cpu;
        index.close().unwrap();
        on_cpu
    }

    /// Opens a copy of the file as a kill would leave it, where its pages are the file's.
    fn check_copy(&mut self, options: &Options) {
        if self.life.domain != Domain::Shared {
            return;
        }
        let copy = self.life.path.with_extension("copy");
        std::fs::copy(&self.life.path, &copy).unwrap();
        if let Some(index) = self.attempt(2, "open a copy", || Index::open(&copy, options)) {
            self.look(&index, "a copy");
            self.check(&index, "a copy");
            index.close().unwrap();
        }
        std::fs::remove_file(&copy).unwrap();
    }

    /// Calls the index until it answers, so many times; `None` if it does not.
    fn attempt<T>(
        &mut self,
        times: u64,
        what: &str,
        mut call: impl FnMut() -> Result<T, Error>,
    ) -> Option<T> {
        for _ in 0..times {
            let failures = self.driver.failures();
            match call() {
                Ok(answer) => return Some(answer),
                Err(error) => self.expected(what, failures, &error),
            }
        }
        None
    }

    /// An error must be that of a call which has failed, and name it.
    fn expected(&mut self, what: &str, failures: u64, error: &Error) {
        self.errors += 1;
        println!("  {what}: {error}");
        let text = error.to_string();
        assert!(matches!(error, Error::Gpu { .. }), "{what}: {text}");
        assert!(self.driver.failures() > 0, "{what}: {text}");
        if !self.fault.is_for_good() && self.driver.failures() > failures {
            let name = self.driver.failed();
            assert!(
                text.contains(&name),
                "{what}: {name} failed, not said by: {text}"
            );
        }
    }

    /// A batch that changes the index. What an error leaves open of each of its keys, the next look closes.
    fn change(&mut self, index: &Index<u64, V>, verb: Verb, keys: &[u64], round: u64) {
        let values: Vec<V> = (0..)
            .zip(keys)
            .map(|(nth, key)| V::of(key << 20 | round << 16 | nth))
            .collect();
        for _ in 0..3 {
            let failures = self.driver.failures();
            let answer = match verb {
                Verb::Insert => index.insert(keys, &values),
                Verb::Upsert => index.upsert(keys, &values),
                Verb::Update => index.update(keys, &values),
                Verb::Remove => index.remove(keys),
            };
            let is_done = answer.is_ok();
            if let Err(error) = answer {
                self.expected(&format!("{verb:?}"), failures, &error);
            }
            let before = self.model.clone();
            for (key, value) in keys.iter().zip(&values) {
                let then = self.model.entry(*key).or_insert_with(|| vec![None]);
                let next: Vec<Option<V>> = then
                    .iter()
                    .map(|held| match (verb, held) {
                        (Verb::Insert, None) | (Verb::Upsert, _) | (Verb::Update, Some(_)) => {
                            Some(*value)
                        }
                        (Verb::Insert | Verb::Update, held) => *held,
                        (Verb::Remove, _) => None,
                    })
                    .collect();
                *then = next;
            }
            if is_done {
                return;
            }
            // Each key has what it had, or what the batch gives it.
            for (key, had) in before {
                let may_have = self.model.entry(key).or_default();
                may_have.extend(
                    had.iter()
                        .filter(|held| !may_have.clone().contains(held))
                        .copied()
                        .collect::<Vec<_>>(),
                );
            }
            for key in keys {
                let may_have = self.model.entry(*key).or_default();
                if !may_have.contains(&None) && matches!(verb, Verb::Insert | Verb::Upsert) {
                    may_have.push(None);
                }
            }
        }
        panic!("{verb:?} fails again and again");
    }

    /// Looks all keys up.
    fn look(&mut self, index: &Index<u64, V>, when: &str) {
        let mut keys: Vec<u64> = self.model.keys().copied().collect();
        keys.extend(1 << 40..(1 << 40) + 50);
        let mut values = vec![V::zeroed(); keys.len()];
        let found = self
            .attempt(3, "get", || index.get(&keys, &mut values))
            .expect("gets are served");
        let contained = self
            .attempt(3, "contains", || index.contains(&keys))
            .expect("they are served");
        for (nth, key) in keys.iter().enumerate() {
            let held = found.contains(nth).then_some(values[nth]);
            let may_have = self.model.get(key).cloned().unwrap_or(vec![None]);
            assert!(may_have.contains(&held), "{when}: {key} is {held:?}");
            assert_eq!(contained.contains(nth), held.is_some(), "{when}: {key}");
            if let Some(may_have) = self.model.get_mut(key) {
                *may_have = vec![held];
            }
        }
    }

    /// Compares all items.
    fn check(&self, index: &Index<u64, V>, when: &str) {
        let mut seen = HashMap::new();
        for (key, value) in index.iter() {
            assert_eq!(seen.insert(key, value), None, "{when}: {key} twice");
        }
        assert_eq!(index.len(), seen.len() as u64, "{when}");
        for (key, may_have) in &self.model {
            let held = seen.remove(key);
            assert!(may_have.contains(&held), "{when}: {key} is {held:?}");
        }
        assert!(seen.is_empty(), "{when}: invented {seen:?}");
    }
}
