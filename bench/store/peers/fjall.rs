//! fjall.

use std::path::Path;

use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, UserValue};

use super::Syncer;
use crate::plan::Operation;
use crate::record::Sizes;
use crate::target::{Failure, Manner, Settings, Target, check_answers};

/// See the [module](self).
pub struct Fjall {
    _syncer: Option<Syncer>,
    database: Database,
    records: Keyspace,
    always: bool,
    sizes: Sizes,
    options: String,
}

/// One call.
pub enum Call {
    Get(Vec<u8>),
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Write(fjall::OwnedWriteBatch),
    Range(Vec<u8>, u32),
}

/// What it answered.
pub enum Answer {
    Nothing,
    Value(Option<UserValue>),
    Items(Vec<fjall::KvPair>),
}

impl Fjall {
    pub fn open(path: &Path, settings: &Settings) -> Result<Self, Failure> {
        let cache = settings.budget.map_or(settings.cache, |bytes| bytes / 2);
        let database = Database::builder(path).cache_size(cache).open()?;
        let options = || {
            let options = KeyspaceCreateOptions::default()
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::None));
            match settings.budget {
                Some(bytes) => options.max_memtable_size(bytes / 2),
                None => options,
            }
        };
        let records = database.keyspace("records", options)?;
        let syncer = (!settings.always).then(|| {
            let database = database.clone();
            Syncer::start(settings.interval, move || {
                Ok(database.persist(PersistMode::SyncData)?)
            })
        });
        Ok(Self {
            _syncer: syncer,
            database,
            records,
            always: settings.always,
            sizes: settings.sizes,
            options: format!(
                "journal {}, cache of {} MiB, no compression of data blocks, {}",
                settings.durability(),
                cache >> 20,
                match settings.budget {
                    Some(bytes) => format!("memtables of {} MiB", bytes >> 21),
                    None => "else its defaults".into(),
                }
            ),
        })
    }

    /// Makes a single change as durable as it must be.
    fn persist(&self) -> Result<Answer, Failure> {
        if self.always {
            self.database.persist(PersistMode::SyncData)?;
        }
        Ok(Answer::Nothing)
    }
}

impl Target for Fjall {
    type Calls = Vec<Call>;
    type Answers = Vec<Answer>;

    fn prepare(&self, operations: &[Operation], manner: Manner) -> Vec<Call> {
        let mut calls = Vec::new();
        let mut writes = Vec::new();
        for operation in operations {
            match *operation {
                Operation::Get(record) | Operation::Miss(record) => {
                    calls.push(Call::Get(self.sizes.key(record)));
                }
                Operation::Modify(record) => {
                    calls.push(Call::Get(self.sizes.key(record)));
                    writes.push(Call::Put(self.sizes.key(record), self.sizes.value(record)));
                }
                Operation::Put(record) => {
                    writes.push(Call::Put(self.sizes.key(record), self.sizes.value(record)));
                }
                Operation::Delete(record) => writes.push(Call::Delete(self.sizes.key(record))),
                Operation::Range(start, most) => {
                    calls.push(Call::Range(self.sizes.key(start), most));
                }
                Operation::Merge(_) => unreachable!("it has no merges"),
            }
        }
        if manner == Manner::Single {
            calls.extend(writes);
            return calls;
        }
        // As a single change, a batch is with the kernel when it is answered.
        let durability = match self.always {
            true => PersistMode::SyncData,
            false => PersistMode::Buffer,
        };
        let mut batch = self.database.batch().durability(Some(durability));
        for write in writes {
            match write {
                Call::Put(key, value) => batch.insert(&self.records, key, value),
                Call::Delete(key) => batch.remove(&self.records, key),
                _ => unreachable!("only changes are written"),
            }
        }
        if !batch.is_empty() {
            calls.push(Call::Write(batch));
        }
        calls
    }

    fn execute(&self, calls: Vec<Call>) -> Result<Vec<Answer>, Failure> {
        let execute = |call| match call {
            Call::Get(key) => Ok(Answer::Value(self.records.get(key)?)),
            Call::Put(key, value) => {
                self.records.insert(key, value)?;
                self.persist()
            }
            Call::Delete(key) => {
                self.records.remove(key)?;
                self.persist()
            }
            Call::Write(batch) => {
                batch.commit()?;
                Ok(Answer::Nothing)
            }
            Call::Range(start, most) => {
                let items = self
                    .records
                    .range(start..)
                    .take(usize::try_from(most).unwrap());
                let items = items.map(|item| item.into_inner());
                Ok(Answer::Items(items.collect::<fjall::Result<_>>()?))
            }
        };
        calls.into_iter().map(execute).collect()
    }

    fn check(&self, operations: &[Operation], answers: Vec<Answer>) -> Result<(), Failure> {
        let mut values = Vec::new();
        let mut ranges = Vec::new();
        for answer in &answers {
            match answer {
                Answer::Nothing => {}
                Answer::Value(value) => values.push(value.as_deref()),
                Answer::Items(items) => ranges.push(items.len()),
            }
        }
        check_answers(operations, &self.sizes, values, ranges)
    }

    fn settle(&self) -> Result<(), Failure> {
        self.records.rotate_memtable_and_wait()?;
        while self.database.outstanding_flushes() > 0 || self.database.active_compactions() > 0 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(())
    }

    fn memory(&self) -> Option<u64> {
        None
    }

    fn options(&self) -> &str {
        &self.options
    }
}
