//! A part of a compaction on the GPU.

use std::ops::Range;

use super::job::{Job, OnGpu};
use crate::Result;
use crate::gpu::compaction::abi::{FilterRange, InputBlock, Use};
use crate::gpu::compaction::{Compactor, NewBlocks, Plan, Task};
use crate::lsm::header::HEADER;
use crate::lsm::levels::{Levels, Output};
use crate::lsm::sst::{BLOCK_BYTES, BlockHandle, MadeBlock, Sst, common_prefix, header};
use crate::lsm::values::ValueUse;
use crate::pool::bloom_filter;
use crate::width::to_usize;

/// Fewest bytes of an entry: four numbers.
const ENTRY_BYTES_MIN: usize = 4;

/// The data blocks of a file that may have keys of a range.
struct Input<'j> {
    sst: &'j Sst,
    handles: Vec<BlockHandle>,
    /// How many entries each of them has.
    entries: Vec<u32>,
}

/// Does the part of a job from one key to before another, if there is a lane for it. It is refused if it is not for the
/// GPU, or if something is wrong with a file: the CPU does it then, and says what.
///
/// # Errors
/// [`Error::Gpu`](crate::Error::Gpu), or what the operating system answers.
pub fn merge<'l>(
    job: &Job,
    levels: &'l Levels,
    gpu: &Compactor,
    (from, to): (Option<&[u8]>, Option<&[u8]>),
) -> Result<OnGpu<'l>> {
    let inputs = job.files().map(|sst| input(sst, from, to));
    let inputs: Vec<Input> = inputs.collect::<Result<_>>()?;
    let blocks = blocks(&inputs);
    let entries: usize = blocks.iter().map(|block| block.entries as usize).sum();
    let bytes: usize = blocks.iter().map(|block| block.len as usize).sum();
    if entries == 0 || entries > bytes / ENTRY_BYTES_MIN {
        return Ok(OnGpu::Refused);
    }
    let options = levels.options();
    let ends = || job.files().map(|sst| sst.properties());
    let (Some(smallest), Some(largest)) = (
        ends().map(|of| &of.smallest).min(),
        ends().map(|of| &of.largest).max(),
    ) else {
        return Ok(OnGpu::Refused);
    };
    let mut value_files: Vec<u64> = ends()
        .flat_map(|of| of.values.iter().map(|of| of.file))
        .collect();
    value_files.sort_unstable();
    value_files.dedup();
    let plan = Plan {
        blocks: &blocks,
        from,
        to,
        prefix: common_prefix(smallest, largest),
        key_len: smallest.len().max(largest.len()),
        block_bytes: BLOCK_BYTES as u64,
        file_bytes: options.file_bytes,
        value_bytes_min: options.value_bytes_min as u64,
        hash_seed: options.store_id[0],
        value_files: &value_files,
    };
    let Some(mut task) = options.gpu.begin(gpu, &plan, bytes)? else {
        return Ok(OnGpu::NotReady);
    };
    let mut rest = task.input();
    for input in &inputs {
        let (of_file, behind) = rest.split_at_mut(input.len());
        if let Some(first) = input.handles.first() {
            input.sst.read_blocks(first.from, of_file)?;
        }
        rest = behind;
    }
    let Some(new) = task.merge(&plan, |key| !job.hides(key))? else {
        return Ok(given_up(&task));
    };
    let mut output = Output::new(levels, job.level());
    if new.blocks.is_empty() {
        output.finish()?;
        return Ok(OnGpu::Made {
            output: Box::new(output),
            is_first: true,
        });
    }
    let files = files(&new, options.file_bytes, levels);
    let made = made_blocks(&new);
    let mut seeds = Vec::with_capacity(made.len());
    let mut file_of_block = Vec::with_capacity(made.len());
    for (nth, file) in (0..).zip(&files) {
        let header = header(options.store_id, file.number);
        let start = made[file.blocks.start].at;
        for block in &made[file.blocks.clone()] {
            seeds.push(header.seed(HEADER as u64 + block.at - start));
            file_of_block.push(nth);
        }
    }
    let mut filters = Vec::with_capacity(files.len());
    let mut first = 0;
    for file in &files {
        let entries = made[file.blocks.clone()].iter().map(|block| block.entries);
        let blocks = u32::try_from(bloom_filter::blocks_of(entries.sum())).unwrap_or(u32::MAX);
        filters.push(FilterRange { first, blocks });
        first = first.saturating_add(blocks);
    }
    let Some(sealed) = task.seal(&plan, &seeds, &file_of_block, &filters)? else {
        return Ok(given_up(&task));
    };
    let uses = |nth: usize| {
        let of_file = &sealed.uses[nth * value_files.len()..][..value_files.len()];
        let is_used = |&(_, of): &(&u64, &Use)| of.end > 0;
        let used = value_files.iter().zip(of_file).filter(is_used);
        used.map(|(&file, of)| ValueUse {
            file,
            bytes: of.bytes,
            end: of.end,
        })
        .collect()
    };
    for (nth, file) in files.iter().enumerate() {
        let blocks = &made[file.blocks.clone()];
        let (first, last) = (&blocks[0], &blocks[blocks.len() - 1]);
        let bytes = &sealed.bytes[to_usize(first.at)..to_usize(last.at + last.len)];
        let filter = sealed.filter(&filters[nth]);
        output.add_file(file.number, blocks, bytes, filter, uses(nth))?;
    }
    output.finish()?;
    Ok(OnGpu::Made {
        output: Box::new(output),
        is_first: task.is_first(),
    })
}

/// What a part is that a task has left to the CPU.
fn given_up<'l>(task: &Task) -> OnGpu<'l> {
    match task.lacks_room() {
        true => OnGpu::NotReady,
        false => OnGpu::Refused,
    }
}

fn input<'j>(sst: &'j Sst, from: Option<&[u8]>, to: Option<&[u8]>) -> Result<Input<'j>> {
    let index = &sst.meta()?.index;
    let first = from.map_or(0, |from| index.find(from));
    let end = match to {
        Some(to) if *to <= *sst.properties().smallest => 0,
        // Keys from `to` on may stand in its block, and ones before it.
        Some(to) => index.find(to) + 1,
        None => sst.blocks(),
    };
    let is_before = from.is_some_and(|from| *sst.properties().largest < *from);
    let blocks = if is_before {
        0..0
    } else {
        first..end.max(first)
    };
    Ok(Input {
        sst,
        handles: blocks.clone().map(|nth| index.handle(nth)).collect(),
        entries: blocks.map(|nth| index.entries(nth)).collect(),
    })
}

impl Input<'_> {
    /// Bytes of its blocks.
    fn len(&self) -> usize {
        let ends = (self.handles.first(), self.handles.last());
        let (Some(first), Some(last)) = ends else {
            return 0;
        };
        to_usize(last.to - first.from)
    }
}

/// The blocks of all files, as they stand one behind the other.
fn blocks(inputs: &[Input]) -> Vec<InputBlock> {
    let (mut at, mut first) = (0, 0);
    let mut blocks = Vec::new();
    for input in inputs {
        for (&handle, &entries) in input.handles.iter().zip(&input.entries) {
            blocks.push(InputBlock {
                at,
                seed: input.sst.block_seed(handle),
                len: u32::try_from(handle.bytes()).unwrap_or(u32::MAX),
                entries,
                first,
                reserved: 0,
            });
            at += handle.bytes();
            first = first.saturating_add(entries);
        }
    }
    blocks
}

/// A new file: its number, and its blocks.
struct NewFile {
    number: u64,
    blocks: Range<usize>,
}

/// The files that new blocks stand in.
fn files(new: &NewBlocks, file_bytes: u64, levels: &Levels) -> Vec<NewFile> {
    let mut files: Vec<NewFile> = Vec::new();
    let nth_file = |block: usize| new.blocks[block].position / file_bytes;
    for block in 0..new.blocks.len() {
        match files.last_mut() {
            Some(file) if nth_file(block) == nth_file(file.blocks.start) => {
                file.blocks.end = block + 1;
            }
            _ => files.push(NewFile {
                number: levels.next_number(),
                blocks: block..block + 1,
            }),
        }
    }
    files
}

/// The blocks as a file's writer takes them.
fn made_blocks(new: &NewBlocks) -> Vec<MadeBlock> {
    let end = |nth: usize| match new.blocks.get(nth + 1) {
        Some(next) => (next.at, next.first as usize),
        None => (new.bytes, new.entries),
    };
    let made = new.blocks.iter().enumerate().map(|(nth, block)| {
        let (end_at, end_entry) = end(nth);
        MadeBlock {
            at: block.at,
            len: end_at - block.at,
            entries: end_entry - block.first as usize,
            tombstones: u64::from(block.tombstones),
            sequences: (block.smallest_sequence, block.largest_sequence),
            keys: (new.first_key(nth).to_vec(), new.last_key(nth).to_vec()),
        }
    });
    made.collect()
}
