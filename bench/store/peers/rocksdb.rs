//! RocksDB.

use std::path::Path;
use std::sync::Arc;

use gphash_bench::rocks::Setup;
use rocksdb::{
    ColumnFamilyDescriptor, DB, DBPinnableSlice, Direction, IteratorMode, MergeOperands,
    ReadOptions, WriteBatch, WriteOptions,
};

use super::Syncer;
use crate::plan::Operation;
use crate::record::{Sizes, add};
use crate::target::{Failure, Manner, Settings, Target, check_answers};

/// The column family of the records: the one that is always there.
const RECORDS: &str = "default";

/// Bytes that a record takes in a memtable beside its key and its value: a node of the skip list, lengths
/// and a sequence number.
const MEMTABLE_OVERHEAD: u64 = 64;

/// The options that are printed, by the names that RocksDB writes into its file of options.
const PRINTED: [&str; 18] = [
    "rocksdb_version",
    "max_background_jobs",
    "max_subcompactions",
    "allow_concurrent_memtable_write",
    "enable_pipelined_write",
    "unordered_write",
    "manual_wal_flush",
    "write_buffer_size",
    "max_write_buffer_number",
    "db_write_buffer_size",
    "memtable_factory",
    "memtable_whole_key_filtering",
    "memtable_prefix_bloom_size_ratio",
    "compression",
    "filter_policy",
    "block_size",
    "block_restart_interval",
    "data_block_index_type",
];

/// See the [module](self).
pub struct Rocks {
    _syncer: Option<Syncer>,
    db: Arc<DB>,
    read: ReadOptions,
    write: WriteOptions,
    sizes: Sizes,
    options: String,
}

/// One call.
pub enum Call {
    Get(Vec<u8>),
    GetMany(Vec<Vec<u8>>),
    Write(WriteBatch),
    Range(Vec<u8>, u32),
}

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
    pub fn open(path: &Path, settings: &Settings, is_tuned: bool) -> Result<Self, Failure> {
        let record = settings.sizes.key as u64 + settings.sizes.value as u64 + MEMTABLE_OVERHEAD;
        let setup = Setup {
            is_tuned,
            cache: settings.budget.map_or(settings.cache, |bytes| bytes / 2),
            data: settings.records * record,
            budget: settings.budget.map(|bytes| bytes / 2),
            cores: u16::try_from(std::thread::available_parallelism()?.get())?,
        };
        let mut options = setup.options()?;
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
        let cache = match is_tuned {
            true => "HyperClockCache",
            false => "LRUCache",
        };
        Ok(Self {
            _syncer: syncer,
            db,
            read: ReadOptions::default(),
            write,
            sizes: settings.sizes,
            options: format!(
                "WAL {}, block_cache={cache} of {} MiB, {}",
                settings.durability(),
                setup.cache >> 20,
                noted_options(path)?
            ),
        })
    }
}

/// The options that RocksDB has noted after it was opened, as it has taken them.
fn noted_options(path: &Path) -> Result<String, Failure> {
    let files = std::fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
    let of_options = |name: &str| name.starts_with("OPTIONS-") && !name.ends_with(".dbtmp");
    let names = files
        .iter()
        .filter_map(|file| file.file_name().into_string().ok());
    let latest = names.filter(|name| of_options(name)).max();
    let latest = latest.ok_or("RocksDB has noted no options")?;
    let text = std::fs::read_to_string(path.join(latest))?;
    let is_printed = |line: &&str| {
        line.split_once('=')
            .is_some_and(|(name, _)| PRINTED.contains(&name))
    };
    let lines: Vec<&str> = text.lines().map(str::trim).filter(is_printed).collect();
    Ok(lines.join(" "))
}

fn owned(value: Option<DBPinnableSlice>) -> Option<Vec<u8>> {
    value.map(|value| value.to_vec())
}

impl Target for Rocks {
    type Calls = Vec<Call>;
    type Answers = Vec<Answer>;

    fn prepare(&self, operations: &[Operation], manner: Manner) -> Vec<Call> {
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
        calls
    }

    fn execute(&self, calls: Vec<Call>) -> Result<Vec<Answer>, Failure> {
        let execute = |call| match call {
            Call::Get(key) => Ok(Answer::Value(owned(
                self.db.get_pinned_opt(key, &self.read)?,
            ))),
            Call::GetMany(keys) => {
                let records = self.db.cf_handle(RECORDS).ok_or("no column family")?;
                let values = self
                    .db
                    .batched_multi_get_cf_opt(records, &keys, false, &self.read);
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
        calls.into_iter().map(execute).collect()
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

    fn options(&self) -> &str {
        &self.options
    }
}
