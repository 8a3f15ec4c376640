//! RocksDB.

use std::path::Path;
use std::sync::Arc;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBCompressionType, DBPinnableSlice,
    Direction, IteratorMode, MergeOperands, Options, WriteBatch, WriteOptions,
};

use super::Syncer;
use crate::plan::Operation;
use crate::record::{Sizes, add};
use crate::target::{Failure, Manner, Settings, Target, check_answers};

/// The column family of the records: the one that is always there.
const RECORDS: &str = "default";

/// See the [module](self).
pub struct Rocks {
    _syncer: Option<Syncer>,
    db: Arc<DB>,
    write: WriteOptions,
    sizes: Sizes,
}

/// One call.
pub enum Call {
    Get(Vec<u8>),
    GetMany(Vec<Vec<u8>>),
    Write(WriteBatch),
    Range(Vec<u8>, u32),
}

/// A batch is moved to the thread that executes it.
pub struct Calls(Vec<Call>);

// SAFETY: nobody else holds the batch, and RocksDB ties it to no thread.
unsafe impl Send for Calls {}

type Item = (Box<[u8]>, Box<[u8]>);

/// What it answered: values are copied out of its cache, as those of the others are.
pub enum Answer {
    Nothing,
    Value(Option<Vec<u8>>),
    Values(Vec<Option<Vec<u8>>>),
    Items(Vec<Item>),
}

fn merge(_: &[u8], value: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut value = value.unwrap_or_default().to_vec();
    for operand in operands {
        add(&mut value, u64::from_le_bytes(operand.try_into().ok()?));
    }
    Some(value)
}

impl Rocks {
    pub fn open(path: &Path, settings: &Settings) -> Result<Self, Failure> {
        let mut table = BlockBasedOptions::default();
        let cache = settings.budget.map_or(settings.cache, |bytes| bytes / 2);
        table.set_block_cache(&Cache::new_lru_cache(usize::try_from(cache)?)?);
        table.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.increase_parallelism(i32::try_from(std::thread::available_parallelism()?.get())?);
        options.set_block_based_table_factory(&table);
        if let Some(bytes) = settings.budget {
            let bytes = usize::try_from(bytes)?;
            options.set_db_write_buffer_size(bytes / 2);
            options.set_write_buffer_size(bytes / 8);
        }
        options.set_compression_type(DBCompressionType::None);
        // Its merges need not be associative, so operands are not put together.
        options.set_merge_operator("add", merge, |_, _, _| None);
        // A batch of gets names its column family, which is only known if it was opened by name.
        let records = ColumnFamilyDescriptor::new(RECORDS, options.clone());
        let db = Arc::new(DB::open_cf_descriptors(&options, path, [records])?);
        let mut write = WriteOptions::default();
        write.set_sync(settings.always);
        let syncer = (!settings.always).then(|| {
            let db = Arc::clone(&db);
            Syncer::start(settings.interval, move || Ok(db.flush_wal(true)?))
        });
        Ok(Self {
            _syncer: syncer,
            db,
            write,
            sizes: settings.sizes,
        })
    }
}

fn owned(value: Option<DBPinnableSlice>) -> Option<Vec<u8>> {
    value.map(|value| value.to_vec())
}

impl Target for Rocks {
    type Calls = Calls;
    type Answers = Vec<Answer>;

    fn prepare(&self, operations: &[Operation], manner: Manner) -> Calls {
        let mut calls = Vec::new();
        let mut reads = Vec::new();
        let mut batch = WriteBatch::default();
        for operation in operations {
            match *operation {
                Operation::Get(record) | Operation::Miss(record) => {
                    reads.push(self.sizes.key(record));
                }
                Operation::Modify(record) => {
                    reads.push(self.sizes.key(record));
                    batch.put(self.sizes.key(record), self.sizes.value(record));
                }
                Operation::Put(record) => {
                    batch.put(self.sizes.key(record), self.sizes.value(record));
                }
                Operation::Merge(record) => {
                    batch.merge(self.sizes.key(record), 1_u64.to_le_bytes());
                }
                Operation::Delete(record) => batch.delete(self.sizes.key(record)),
                Operation::Range(start, most) => {
                    calls.push(Call::Range(self.sizes.key(start), most));
                }
            }
        }
        match manner {
            Manner::Single => calls.extend(reads.into_iter().map(Call::Get)),
            _ if reads.is_empty() => {}
            _ => calls.push(Call::GetMany(reads)),
        }
        if !batch.is_empty() {
            calls.push(Call::Write(batch));
        }
        Calls(calls)
    }

    fn execute(&self, calls: Calls) -> Result<Vec<Answer>, Failure> {
        let execute = |call| match call {
            Call::Get(key) => Ok(Answer::Value(owned(self.db.get_pinned(key)?))),
            Call::GetMany(keys) => {
                let records = self.db.cf_handle(RECORDS).ok_or("no column family")?;
                let values = self.db.batched_multi_get_cf(records, &keys, false);
                let values = values.into_iter().map(|value| value.map(owned));
                Ok(Answer::Values(values.collect::<Result<_, _>>()?))
            }
            Call::Write(batch) => {
                self.db.write_opt(batch, &self.write)?;
                Ok(Answer::Nothing)
            }
            Call::Range(start, most) => {
                let mode = IteratorMode::From(&start, Direction::Forward);
                let items = self.db.iterator(mode).take(usize::try_from(most).unwrap());
                Ok(Answer::Items(items.collect::<Result<_, _>>()?))
            }
        };
        calls.0.into_iter().map(execute).collect()
    }

    fn check(&self, operations: &[Operation], answers: Vec<Answer>) -> Result<(), Failure> {
        let mut values = Vec::new();
        let mut ranges = Vec::new();
        for answer in &answers {
            match answer {
                Answer::Nothing => {}
                Answer::Value(value) => values.push(value.as_deref()),
                Answer::Values(all) => values.extend(all.iter().map(Option::as_deref)),
                Answer::Items(items) => ranges.push(items.len()),
            }
        }
        check_answers(operations, &self.sizes, values, ranges)
    }

    fn settle(&self) -> Result<(), Failure> {
        self.db.flush()?;
        let pending = || -> Result<u64, Failure> {
            let count = |name: &str| {
                Ok::<u64, Failure>(self.db.property_int_value(name)?.unwrap_or_default())
            };
            Ok(count("rocksdb.num-running-compactions")? + count("rocksdb.compaction-pending")?)
        };
        while pending()? > 0 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(())
    }

    fn memory(&self) -> Option<u64> {
        None
    }
}
