//! How RocksDB is opened, by the bench `store` and by the test that compares answers with it.

use std::num::TryFromIntError;

use rocksdb::{BlockBasedOptions, Cache, DBCompressionType, DataBlockIndexType, Options};

/// Fewest bytes of a write buffer: those of RocksDB's default.
const WRITE_BUFFER_MIN: u64 = 64 << 20;

/// Part of a write buffer that its Bloom filter gets: that of `OptimizeForPointLookup`.
const MEMTABLE_BLOOM_RATIO: f64 = 0.02;

/// What RocksDB is opened for.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// By its tuning guide, for data that fits into memory; else by its defaults.
    pub is_tuned: bool,
    /// Bytes that blocks may be cached in.
    pub cache: u64,
    /// Bytes of a memtable with all records.
    pub data: u64,
    /// Bytes of all memtables, if not all records should stay in memory.
    pub budget: Option<u64>,
    pub cores: u16,
}

impl Setup {
    /// The options, without operators of the caller.
    ///
    /// # Errors
    /// Sizes that this machine cannot count to.
    pub fn options(&self) -> Result<Options, TryFromIntError> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::None);
        options.increase_parallelism(self.cores.into());
        let mut table = BlockBasedOptions::default();
        table.set_bloom_filter(10.0, false);
        let cache = usize::try_from(self.cache)?;
        match self.is_tuned {
            true => {
                table.set_block_cache(&Cache::new_hyper_clock_cache(cache, 0));
                self.tune(&mut options, &mut table)?;
            }
            false => table.set_block_cache(&Cache::new_lru_cache(cache)),
        }
        if let Some(bytes) = self.budget {
            let bytes = usize::try_from(bytes)?;
            options.set_db_write_buffer_size(bytes);
            options.set_write_buffer_size(bytes / 4);
        }
        options.set_block_based_table_factory(&table);
        Ok(options)
    }

    /// `unordered_write` is left out: snapshots, ranges and batches of gets would no longer see one
    /// point in time, which those of the others do.
    fn tune(
        &self,
        options: &mut Options,
        table: &mut BlockBasedOptions,
    ) -> Result<(), TryFromIntError> {
        let write_buffer = usize::try_from(self.data.max(WRITE_BUFFER_MIN))?;
        options.set_write_buffer_size(write_buffer);
        options.set_max_write_buffer_number(4);
        options.set_enable_pipelined_write(true);
        options.set_memtable_whole_key_filtering(true);
        options.set_memtable_prefix_bloom_ratio(MEMTABLE_BLOOM_RATIO);
        options.set_max_background_jobs(i32::from(self.cores.max(2)) * 2);
        options.set_max_subcompactions(self.cores.into());
        // A get within a block hashes in place of searching, and then compares few keys.
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_block_restart_interval(4);
        Ok(())
    }
}
