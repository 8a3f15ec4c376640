//! The kernels of `compaction.cu`, and the sums that several of them make up.

use bytemuck::bytes_of;

use super::abi::View;
use crate::gpu::device::Device;
use crate::gpu::error::Result;
use crate::gpu::launch::{Blocks, Function, Launch, THREADS};
use crate::gpu::memory::Address;
use crate::gpu::module::Module;
use crate::gpu::radix::Radix;

/// Words that a block of threads adds up.
pub const SUMMED_BY_BLOCK: u32 = 8 * THREADS;

/// See the [module](self).
pub struct Kernels {
    pub check_blocks: Function,
    pub parse_blocks: Function,
    pub load_key_words: Function,
    pub radix: Radix,
    pub order_alike: Function,
    pub mark_kept: Function,
    pub copy_tombstones: Function,
    pub drop_tombstones: Function,
    pub sum_parts: Function,
    pub start_parts: Function,
    pub add_parts: Function,
    pub take_kept: Function,
    pub mark_starts: Function,
    pub note_firsts: Function,
    pub measure_entries: Function,
    pub encode_entries: Function,
    pub fill_filters: Function,
    pub describe_blocks: Function,
    pub seal_blocks: Function,
    pub count_values: Function,
    pub blocks: Blocks,
    // The functions are its.
    _module: Module,
}

impl Kernels {
    /// Loads the kernels into the current context.
    pub fn load(device: &Device) -> Result<Self> {
        let module = Module::load(crate::COMPACTION)?;
        let find = |name| module.function(name);
        Ok(Self {
            check_blocks: find("check_blocks")?,
            parse_blocks: find("parse_blocks")?,
            load_key_words: find("load_key_words")?,
            radix: Radix::load(&module)?,
            order_alike: find("order_alike")?,
            mark_kept: find("mark_kept")?,
            copy_tombstones: find("copy_tombstones")?,
            drop_tombstones: find("drop_tombstones")?,
            sum_parts: find("sum_parts")?,
            start_parts: find("start_parts")?,
            add_parts: find("add_parts")?,
            take_kept: find("take_kept")?,
            mark_starts: find("mark_starts")?,
            note_firsts: find("note_firsts")?,
            measure_entries: find("measure_entries")?,
            encode_entries: find("encode_entries")?,
            fill_filters: find("fill_filters")?,
            describe_blocks: find("describe_blocks")?,
            seal_blocks: find("seal_blocks")?,
            count_values: find("count_values")?,
            blocks: Blocks::of(device),
            _module: module,
        })
    }

    /// Puts, instead of each word of an entry, the sum of those before it.
    ///
    /// # Safety
    /// There must be a word more than entries, and a sum for each part of them, until the stream has come past.
    pub unsafe fn sum(
        &self,
        on: &mut impl Launch,
        view: &View,
        words: Address,
        sums: Address,
    ) -> Result<()> {
        let len = view.entry_count + 1;
        let parts = len.div_ceil(SUMMED_BY_BLOCK);
        let arguments: [&[u8]; 3] = [bytes_of(&words), bytes_of(&len), bytes_of(&sums)];
        // SAFETY: the caller vouches for both.
        unsafe {
            on.put(self.sum_parts, parts, &arguments)?;
            on.put(self.start_parts, 1, &[bytes_of(&sums), bytes_of(&parts)])?;
            on.put(self.add_parts, parts, &arguments)
        }
    }
}
