//! What a GPU does for a store, and how much of its memory it may have for that.

use super::StoreOptions;
use crate::{Engine, Options};

impl StoreOptions {
    /// Fewest bytes of a [`device_memory_budget`](Self::device_memory_budget): 64 MiB.
    pub const MIN_DEVICE_MEMORY_BUDGET: u64 = Options::MIN_DEVICE_MEMORY_BUDGET;

    /// Who sorts the versions that a batch makes of its keys and finds those that its gets see. A GPU does
    /// when many requests wait, about 10,000 or more as their rate has it, and with `Auto` where it has been faster. The
    /// CPU does it for fewer, and executes the rest of every batch. A GPU also reads long
    /// [columns](crate::store::Store::get_columns) of keys, by copies of the tables in its memory, and compacts sorted
    /// files, each where it has been faster. Results are the same.
    /// With [`Engine::Cuda`] a store is not opened without that GPU.
    ///
    /// Default: [`Engine::Auto`], a GPU if this build and this machine have one.
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Bytes of the GPU's memory that the store may take, all partitions together, at least
    /// [`MIN_DEVICE_MEMORY_BUDGET`](Self::MIN_DEVICE_MEMORY_BUDGET).
    ///
    /// It counts copies of tables and of records, questions, answers and values of columns, what sorts groups, and the
    /// lanes of compactions; as [`device_memory_bytes`](crate::store::StoreStats::device_memory_bytes) does. What it does
    /// not count is as [in an index](Options::device_memory_budget).
    ///
    /// Half of it, at most 1 GiB, is for buffers, the rest for copies. Where that does not suffice,
    /// - records are not copied, or no longer once levels need their room: the GPU then says where records are, and the CPU
    ///   reads them;
    /// - partitions whose levels have no room are read by the CPU;
    /// - columns, groups and parts of compactions that find no room for their buffers are the CPU's, as are values; lanes
    ///   of compactions are fewer and shorter.
    ///
    /// Results are the same, and no call fails for it. Each opening may give another. It means nothing to
    /// [`Engine::Cpu`]. Without one, records are copied as long as half of the device's memory stays free.
    ///
    /// Default: none.
    ///
    /// # Examples
    /// ```
    /// let options = gphash::store::StoreOptions::new().device_memory_budget(1 << 30);
    /// ```
    #[must_use]
    pub fn device_memory_budget(mut self, bytes: u64) -> Self {
        self.device_memory_budget = Some(bytes);
        self
    }

    /// Has that share of the parts of compactions, drawn, done by the GPU, if there is one. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn gpu_compaction_share(mut self, share: f64) -> Self {
        self.gpu_compaction_share = Some(share);
        self
    }
}
