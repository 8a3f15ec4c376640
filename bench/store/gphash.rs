//! The store of this crate.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gphash::store::{
    ColumnAnswers, Columns, Durability, HotCacheOptions, MergeOperator, Request, RequestKind,
    Response, Steps, Store, StoreOptions, ValueColumns,
};

use crate::plan::Operation;
use crate::process::{processor_ticks, written};
use crate::record::{Sizes, add};
use crate::target::{Compacted, Failure, HotGets, Manner, Settings, Target, check_answers};

/// After so long without work in the background, none is due.
const QUIET: Duration = Duration::from_secs(1);

/// Processor time of a quiet process in that time: threads that look whether there is work.
const QUIET_TICKS_MAX: u64 = 2;

/// Records that are put at a time into a store that is filled.
const FILL_RECORDS: usize = 1 << 18;

/// Adds to the counter in a value.
struct Add;

impl MergeOperator for Add {
    fn name(&self) -> &str {
        "add"
    }

    fn merge(&self, _key: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        let operand = operand.try_into().map_err(|_| "an operand has 8 bytes")?;
        let mut value = value.unwrap_or_default().to_vec();
        add(&mut value, u64::from_le_bytes(operand));
        Ok(value)
    }
}

/// See the [module](self).
pub struct Gphash {
    store: Store,
    records: u64,
    sizes: Sizes,
    in_columns: bool,
    options: String,
    /// Buffers of columns that have been checked.
    buffers: Mutex<Vec<ValueColumns>>,
}

/// One call.
#[derive(Clone)]
pub enum Call {
    Execute(Vec<Request>),
    Gets(Columns),
    Puts(Columns, Columns),
    Columns(Vec<RequestKind>, Columns, Columns),
    Get(Vec<u8>),
    Put(Vec<u8>, Vec<u8>),
    Merge(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Range(Vec<u8>, u32),
    Transaction(Vec<Request>),
}

/// What it answered.
pub enum Answer {
    Nothing,
    Values(Vec<Response>),
    Columns(Vec<RequestKind>, ColumnAnswers),
    Column {
        values: ValueColumns,
        /// To free them is not part of the call.
        _keys: Columns,
    },
    Put {
        _keys: Columns,
        _values: Columns,
    },
    Value(Option<Vec<u8>>),
    Items(Vec<(Vec<u8>, Vec<u8>)>),
}

/// The requests of a batch in columns.
fn columns(requests: &[Request]) -> Call {
    let kind = |request: &Request| match request {
        Request::Get { .. } => RequestKind::Get,
        Request::Put { .. } => RequestKind::Put,
        Request::Delete { .. } => RequestKind::Delete,
        Request::Merge { .. } => RequestKind::Merge,
        other => unreachable!("no operation asks for {other:?}"),
    };
    let value = |request: &Request| match request {
        Request::Put { value, .. } | Request::Merge { operand: value, .. } => value.clone(),
        _ => Vec::new(),
    };
    let kinds: Vec<RequestKind> = requests.iter().map(kind).collect();
    let keys = requests.iter().map(Request::key).collect();
    let values = requests.iter().map(value).collect();
    let are_all = |kind| kinds.iter().all(|one| *one == kind);
    if are_all(RequestKind::Get) {
        Call::Gets(keys)
    } else if are_all(RequestKind::Put) {
        Call::Puts(keys, values)
    } else {
        Call::Columns(kinds, keys, values)
    }
}

impl Gphash {
    /// Those of answers that were checked.
    fn buffers(&self) -> ValueColumns {
        let buffers = self.buffers.lock().expect("nobody panics").pop();
        buffers.unwrap_or_default()
    }

    pub fn open(path: &Path, settings: &Settings) -> Result<Self, Failure> {
        let durability = match settings.always {
            true => Durability::Always,
            false => Durability::Interval(settings.interval),
        };
        let mut options = StoreOptions::new()
            .engine(settings.engine)
            .durability(durability)
            .verify_checksums(settings.checksums)
            .merge_operator(Arc::new(Add));
        options = options.compaction_threads(settings.compaction_threads);
        if let Some(bytes) = settings.compaction_rate {
            options = options.compaction_rate(bytes);
        }
        let mut hot_cache = HotCacheOptions::new(settings.hot_cache);
        if let Some(bins) = settings.hot_bins {
            hot_cache = hot_cache.bins(bins);
        }
        options = options.hot_cache(hot_cache);
        if let Some(bytes) = settings.value_file_threshold {
            options = options.value_file_threshold(bytes);
        }
        if let Some(partitions) = settings.partitions {
            options = options.partitions(partitions);
        }
        if let Some(requests) = settings.group_requests_max {
            options = options.group_requests_max(requests);
        }
        options = match settings.budget {
            Some(bytes) => options.memory_budget(bytes),
            None => options.capacity(settings.records),
        };
        let store = Store::open(path, &options)?;
        Ok(Self {
            records: settings.records,
            sizes: settings.sizes,
            in_columns: settings.columns,
            buffers: Mutex::default(),
            options: format!(
                "log {}, {} partitions, engine {:?}, checksums {}, columns {}, hot cache {} MiB, {}",
                settings.durability(),
                store.stats().partitions,
                settings.engine,
                settings.checksums,
                settings.columns,
                settings.hot_cache >> 20,
                match settings.budget {
                    Some(bytes) => format!("memory budget of {} MiB", bytes >> 20),
                    None => format!("capacity for {} records", settings.records),
                }
            ),
            store,
        })
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Puts all records into it.
    pub fn fill(&self) -> Result<(), Failure> {
        for first in (0..self.records).step_by(FILL_RECORDS) {
            let records = first..self.records.min(first + FILL_RECORDS as u64);
            let keys = records.clone().map(|record| self.sizes.key(record));
            let values = records.map(|record| self.sizes.value(record));
            self.store.put_columns(&keys.collect(), &values.collect())?;
        }
        self.settle()
    }

    /// Takes the buffers of answers back, for later ones.
    pub fn reuse(&self, answers: Vec<Answer>) {
        for answer in answers {
            if let Answer::Column { values, .. }
            | Answer::Columns(_, ColumnAnswers { values, .. }) = answer
            {
                self.buffers.lock().expect("nobody panics").push(values);
            }
        }
    }

    fn requests(&self, operation: Operation) -> impl Iterator<Item = Request> {
        let get = |record| Request::Get {
            key: self.sizes.key(record),
        };
        let put = |record| Request::Put {
            key: self.sizes.key(record),
            value: self.sizes.value(record),
        };
        let (first, second) = match operation {
            Operation::Get(record) | Operation::Miss(record) => (Some(get(record)), None),
            Operation::Put(record) => (Some(put(record)), None),
            Operation::Modify(record) => (Some(get(record)), Some(put(record))),
            Operation::Merge(record) => {
                let merge = Request::Merge {
                    key: self.sizes.key(record),
                    operand: 1_u64.to_le_bytes().to_vec(),
                };
                (Some(merge), None)
            }
            Operation::Delete(record) => {
                let delete = Request::Delete {
                    key: self.sizes.key(record),
                };
                (Some(delete), None)
            }
            Operation::Range(..) => (None, None),
        };
        first.into_iter().chain(second)
    }

    fn transact(&self, requests: Vec<Request>) -> Result<Vec<Response>, Failure> {
        loop {
            let mut transaction = self.store.transaction();
            let mut answers = Vec::with_capacity(requests.len());
            for request in &requests {
                answers.push(match request {
                    Request::Get { key } => Response::Value(transaction.get(key)?),
                    Request::Put { key, value } => {
                        transaction.put(key.clone(), value.clone())?;
                        Response::Done
                    }
                    other => return Err(format!("{other:?} in a transaction").into()),
                });
            }
            match transaction.commit() {
                Err(gphash::Error::Conflict) => {}
                outcome => return Ok(outcome.map(|()| answers)?),
            }
        }
    }
}

impl Target for Gphash {
    type Calls = Vec<Call>;
    type Answers = Vec<Answer>;

    fn prepare(&self, operations: &[Operation], manner: Manner) -> Vec<Call> {
        let requests = operations
            .iter()
            .flat_map(|operation| self.requests(*operation));
        let ranges = operations.iter().filter_map(|operation| match operation {
            Operation::Range(start, most) => Some(Call::Range(self.sizes.key(*start), *most)),
            _ => None,
        });
        let mut calls: Vec<Call> = ranges.collect();
        match manner {
            Manner::Single => calls.extend(requests.map(|request| match request {
                Request::Get { key } => Call::Get(key),
                Request::Put { key, value } => Call::Put(key, value),
                Request::Merge { key, operand } => Call::Merge(key, operand),
                Request::Delete { key } => Call::Delete(key),
                other => unreachable!("no operation asks for {other:?}"),
            })),
            Manner::Batch if self.in_columns => calls.push(columns(&requests.collect::<Vec<_>>())),
            Manner::Batch => calls.push(Call::Execute(requests.collect())),
            Manner::Transaction => calls.push(Call::Transaction(requests.collect())),
        }
        calls
    }

    fn execute(&self, calls: Vec<Call>) -> Result<Vec<Answer>, Failure> {
        let execute = |call| {
            Ok(match call {
                Call::Execute(requests) => Answer::Values(self.store.execute(requests)?),
                Call::Gets(keys) => {
                    let values = self.store.get_columns_into(&keys, self.buffers())?;
                    Answer::Column {
                        values,
                        _keys: keys,
                    }
                }
                Call::Puts(keys, values) => {
                    self.store.put_columns(&keys, &values)?;
                    Answer::Put {
                        _keys: keys,
                        _values: values,
                    }
                }
                Call::Columns(kinds, keys, values) => {
                    let buffers = self.buffers();
                    let answers = self
                        .store
                        .execute_columns_into(&kinds, &keys, &values, buffers)?;
                    Answer::Columns(kinds, answers)
                }
                Call::Get(key) => Answer::Value(self.store.get(&key)?),
                Call::Put(key, value) => {
                    self.store.put(key, value)?;
                    Answer::Nothing
                }
                Call::Merge(key, operand) => {
                    self.store.merge(key, operand)?;
                    Answer::Nothing
                }
                Call::Delete(key) => {
                    self.store.delete(key)?;
                    Answer::Nothing
                }
                Call::Range(start, most) => {
                    let items = self.store.scan(start, most as usize);
                    Answer::Items(items.collect::<gphash::Result<_>>()?)
                }
                Call::Transaction(requests) => Answer::Values(self.transact(requests)?),
            })
        };
        calls.into_iter().map(execute).collect()
    }

    fn check(&self, operations: &[Operation], answers: Vec<Answer>) -> Result<(), Failure> {
        let mut values = Vec::new();
        let mut ranges = Vec::new();
        for answer in &answers {
            match answer {
                Answer::Nothing | Answer::Put { .. } => {}
                Answer::Column { values: column, .. } => values.extend(column.iter()),
                Answer::Value(value) => values.push(value.as_deref()),
                Answer::Columns(kinds, answers) => {
                    if let Some((_, error)) = answers.failures.first() {
                        return Err(error.to_string().into());
                    }
                    let kinds = kinds.iter().zip(answers.values.iter());
                    let gets = kinds.filter(|(kind, _)| **kind == RequestKind::Get);
                    values.extend(gets.map(|(_, value)| value));
                }
                Answer::Items(items) => ranges.push(items.len()),
                Answer::Values(responses) => {
                    for response in responses {
                        match response {
                            Response::Value(value) => values.push(value.as_deref()),
                            Response::Done => {}
                            Response::Failed(error) => return Err(error.to_string().into()),
                            other => return Err(format!("answered by {other:?}").into()),
                        }
                    }
                }
            }
        }
        check_answers(operations, &self.sizes, values, ranges)?;
        self.reuse(answers);
        Ok(())
    }

    fn settle(&self) -> Result<(), Failure> {
        self.store.checkpoint()?;
        // A compaction is counted when it ends. One that runs takes processor time, or writes.
        let work = || {
            let spill = self.store.stats().spill;
            (spill.compactions, spill.moves, written())
        };
        loop {
            let (before, ticks) = (work(), processor_ticks());
            std::thread::sleep(QUIET);
            let spent = processor_ticks()
                .zip(ticks)
                .map_or(0, |(after, before)| after - before);
            if work() == before && spent <= QUIET_TICKS_MAX {
                return Ok(());
            }
        }
    }

    fn memory(&self) -> Option<u64> {
        Some(self.store.stats().index.file_len)
    }

    fn options(&self) -> &str {
        &self.options
    }

    fn compacted(&self) -> Option<Compacted> {
        let stats = self.store.stats();
        Some(Compacted {
            bytes: stats.spill.compaction_read + stats.spill.compaction_written,
            time: stats.latencies.compaction.total,
        })
    }

    fn hot_gets(&self) -> Option<HotGets> {
        let stats = self.store.stats().hot_cache;
        let all = stats.hits + stats.misses + stats.cold;
        let hits = stats.hits;
        (stats.bytes > 0).then_some(HotGets { hits, all })
    }

    fn steps(&self) -> Option<Steps> {
        Some(self.store.stats().steps)
    }
}
