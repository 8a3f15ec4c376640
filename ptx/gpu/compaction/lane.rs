//! A lane: what one job needs on the device and in pinned memory, and the steps of the job there.

use std::sync::Arc;

use bytemuck::{bytes_of, cast_slice};

use super::Plan;
use super::abi::{ENTRY, FILTER_BLOCK, FilterRange, OutputBlock, Problems, Status, Use, View};
use super::kernels::{Kernels, SUMMED_BY_BLOCK};
use crate::gpu::budget::Quota;
use crate::gpu::error::Result;
use crate::gpu::launch::{Graphs, Launch, Launches};
use crate::gpu::memory::{Address, DeviceMemory, PinnedMemory, copy_in, copy_out, fill, wait};
use crate::gpu::radix::Radix;
use crate::gpu::stream::Stream;

/// Longest key that the device takes, in bytes: one thread hashes it.
const KEY_BYTES_MAX: usize = 240;

/// Bytes behind a block that the kernels may read and do not use.
const SLACK: usize = 16;

/// Blocks of memory begin at multiples of this.
const ALIGNMENT: usize = 256;

/// Lanes that share the work on a block or an entry.
const GROUP: u32 = 8;

/// Bytes of a filter for a key, at most: it has twelve bits, and each file's begins anew.
const FILTER_KEY_BYTES_MAX: usize = 2;

/// What one job needs; it stays for the next one.
pub struct Lane {
    pub stream: Stream,
    graphs: Graphs,
    /// What goes to the device, and, once it is there, what comes back.
    pub host: PinnedMemory,
    /// What depends on the input alone.
    parsed: DeviceMemory,
    /// What depends on what is kept.
    made: DeviceMemory,
    /// More than this lane has, for which a job had to be given up.
    pub wanted: Room,
    /// It has had no job yet.
    pub is_new: bool,
}

/// Bytes of device memory that a job needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    parsed: usize,
    made: usize,
}

impl Room {
    /// What jobs need with so much input and entries that are not very short.
    pub fn for_input(bytes: usize) -> Self {
        Self {
            parsed: 2 * bytes,
            made: bytes,
        }
    }

    /// What a job needs, and how much pinned memory; nothing if the device does not do it. What comes out is estimated:
    /// about what goes in, with more bytes where other keys stand at restart points.
    pub fn of(plan: &Plan, bytes: usize) -> Option<(Self, usize)> {
        let stride = stride(plan);
        if stride > KEY_BYTES_MAX {
            return None;
        }
        let blocks = plan.blocks.len() + plan.blocks.len() / 8 + 16;
        let files = blocks as u64 * plan.block_bytes / plan.file_bytes + 2;
        let entries: usize = plan.blocks.iter().map(|block| block.entries as usize).sum();
        let of_files = to_usize(files)
            * (FILTER_BLOCK + size_of::<FilterRange>() + plan.value_files.len() * size_of::<Use>());
        let of_blocks = blocks * (size_of::<OutputBlock>() + 2 * stride + 2 * size_of::<u64>());
        let made = bytes
            + bytes / 16
            + of_blocks
            + entries * FILTER_KEY_BYTES_MAX
            + of_files
            + 8 * ALIGNMENT;
        let room = Self {
            parsed: parsed_layout(plan, bytes, stride).1,
            made,
        };
        Some((room, made.max(ALIGNMENT + bytes)))
    }

    /// Bytes of the blocks that are [reserved](Lane::reserve).
    pub fn device_bytes(self) -> u64 {
        let blocks = [self.parsed, self.made].map(usize::next_power_of_two);
        blocks.iter().map(|&block| block as u64).sum()
    }

    /// Enough for either.
    pub fn max(self, other: Self) -> Self {
        Self {
            parsed: self.parsed.max(other.parsed),
            made: self.made.max(other.made),
        }
    }

    /// Enough for either; if it is not enough for a job, then a quarter more than that: the next one may be longer.
    pub fn with(self, job: Self) -> Self {
        let larger = |has: usize, wants: usize| match has < wants {
            true => wants + wants / 4,
            false => has,
        };
        Self {
            parsed: larger(self.parsed, job.parsed),
            made: larger(self.made, job.made),
        }
    }
}

/// What was made so far, and where it is in the memory of what comes back.
#[derive(Default)]
pub struct Made {
    pub entries: usize,
    pub bytes: usize,
    pub described: usize,
    pub ends: usize,
    pub content: usize,
    pub filters: usize,
    /// Where room is left in device memory.
    on_device: usize,
}

/// Lays blocks of memory one behind the other.
#[derive(Default)]
struct Layout(usize);

impl Layout {
    /// Where the next block begins, which has so many bytes.
    fn add(&mut self, bytes: usize) -> usize {
        let at = self.0;
        self.0 = (at + bytes).next_multiple_of(ALIGNMENT);
        at
    }
}

/// Bytes that each key has on the device.
fn stride(plan: &Plan) -> usize {
    let bounds = [plan.from, plan.to].map(|key| key.map_or(0, <[u8]>::len));
    let longest = bounds.into_iter().chain([plan.key_len, 1]).max();
    longest.unwrap_or(1).next_multiple_of(8)
}

/// Where everything is that depends on the input alone, and bytes of all of it.
fn parsed_layout(plan: &Plan, bytes: usize, stride: usize) -> ([usize; 19], usize) {
    let entries: usize = plan.blocks.iter().map(|block| block.entries as usize).sum();
    let entry_count = count(entries);
    let words = (entries + 1) * size_of::<u64>();
    let halves = (entries + 2) * size_of::<u32>();
    let lens = [
        bytes + SLACK,
        size_of_val(plan.blocks),
        2 * stride,
        entries * ENTRY,
        entries * stride + SLACK,
        Radix::bytes(entry_count),
        Radix::bytes(entry_count),
        Radix::counts_bytes(entry_count.max(1)),
        words,
        halves,
        words,
        words,
        halves,
        halves,
        words,
        halves,
        (words / size_of::<u64>()).div_ceil(SUMMED_BY_BLOCK as usize) * size_of::<u64>(),
        size_of_val(plan.value_files),
        size_of::<Status>(),
    ];
    let mut layout = Layout::default();
    let offsets = lens.map(|len| layout.add(len));
    (offsets, layout.0)
}

/// A number that kernels take.
fn count(len: usize) -> u32 {
    u32::try_from(len).expect("a job is short")
}

impl Lane {
    /// One without memory.
    pub fn new(quota: &Arc<Quota>) -> Result<Self> {
        Ok(Self {
            stream: Stream::new()?,
            graphs: Graphs::default(),
            host: PinnedMemory::empty(),
            parsed: DeviceMemory::empty(quota),
            made: DeviceMemory::empty(quota),
            wanted: Room::default(),
            is_new: true,
        })
    }

    /// Gives it so many bytes of pinned memory, once and for all, and at least so much device memory.
    pub fn reserve(&mut self, pinned: usize, room: Room) -> Result<()> {
        if self.host.bytes().is_empty() {
            self.host = PinnedMemory::new(pinned)?;
        }
        self.parsed.reserve(room.parsed)?;
        self.made.reserve(room.made)
    }

    /// Bytes of device memory that it has.
    pub fn device_bytes(&self) -> u64 {
        (self.parsed.len() + self.made.len()) as u64
    }

    /// Whether it has so much device memory.
    pub fn has(&self, room: Room) -> bool {
        self.parsed.len() >= room.parsed && self.made.len() >= room.made
    }

    /// The same; if it has less, a later job of this kind is to find so much.
    fn has_or_wants(&mut self, room: Room) -> bool {
        let has = self.has(room);
        if !has {
            self.wanted = room;
        }
        has
    }

    /// Where the input goes before the job is merged: behind the status.
    pub fn input_mut(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.host.bytes_mut()[ALIGNMENT..][..bytes]
    }

    /// See [`Task::merge`](super::Task::merge). The caller waits for the stream afterwards, whatever comes back.
    pub fn merge(
        &mut self,
        kernels: &Kernels,
        plan: &Plan,
        bytes: usize,
        mut hides_nothing: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<(View, Made)>> {
        let mut stride = stride(plan);
        let (mut view, other, counts, sums) = loop {
            if stride > KEY_BYTES_MAX {
                return Ok(None);
            }
            let Some(laid_out) = self.parse(kernels, plan, bytes, stride)? else {
                return Ok(None);
            };
            let status = self.status();
            match Problems(status.problems) {
                Problems::NONE => break laid_out,
                Problems::LONG_KEY => {
                    stride = (status.longest_key as usize).next_multiple_of(8);
                }
                _ => return Ok(None),
            }
        };
        self.sort(kernels, &view, other, counts)?;
        let status = self.status();
        if Problems(status.problems) != Problems::NONE {
            return Ok(None);
        }
        let mut dropped = Vec::new();
        if status.tombstones > 0 {
            self.tombstones(kernels, &view, status.tombstones, |key| {
                dropped.push(u8::from(hides_nothing(key)));
            })?;
        }
        let [entries, blocks, len] = self.measure(kernels, &view, sums, &dropped)?;
        let mut made = Made {
            entries,
            bytes: len,
            ..Made::default()
        };
        view.new_blocks = u32::try_from(blocks).expect("blocks are fewer than entries");
        if blocks > 0 && !self.encode(kernels, &mut view, &mut made)? {
            return Ok(None);
        }
        Ok(Some((view, made)))
    }

    /// The status that came back last.
    fn status(&self) -> Status {
        bytemuck::pod_read_unaligned(&self.host.bytes()[..size_of::<Status>()])
    }

    /// Copies the input to the device, checks and decodes it, and waits. Gives where all is, and where there is room for
    /// the sort, its counts, and sums; nothing if there is too little room.
    fn parse(
        &mut self,
        kernels: &Kernels,
        plan: &Plan,
        bytes: usize,
        stride: usize,
    ) -> Result<Option<(View, Address, Address, Address)>> {
        let bounds = [plan.from.unwrap_or_default(), plan.to.unwrap_or_default()];
        let entries: usize = plan.blocks.iter().map(|block| block.entries as usize).sum();
        let (offsets, parsed) = parsed_layout(plan, bytes, stride);
        if !self.has_or_wants(Room { parsed, made: 0 }) {
            return Ok(None);
        }
        let base = self.parsed.address();
        let at = offsets.map(|offset| base + offset as u64);
        let view = View {
            input: at[0],
            blocks: at[1],
            bounds: at[2],
            entries: at[3],
            keys: at[4],
            order: at[5],
            kept: at[8],
            numbers: at[9],
            positions: at[10],
            starts: at[11],
            firsts: at[12],
            shared: at[13],
            offsets: at[14],
            tombstones: at[15],
            value_files: at[17],
            status: at[18],
            hash_seed: plan.hash_seed,
            block_bytes: plan.block_bytes,
            file_bytes: plan.file_bytes,
            value_bytes_min: plan.value_bytes_min,
            block_count: count(plan.blocks.len()),
            entry_count: count(entries),
            stride: count(stride),
            prefix: count(plan.prefix),
            from_len: count(bounds[0].len()),
            to_len: plan.to.map_or(u32::MAX, |to| count(to.len())),
            value_file_count: count(plan.value_files.len()),
            ..View::default()
        };
        let mut padded = vec![0; 2 * stride];
        for (bound, to) in bounds.iter().zip(padded.chunks_mut(stride)) {
            to[..bound.len()].copy_from_slice(bound);
        }
        let stream = &self.stream;
        let mut on = Launches::new(stream, &mut self.graphs);
        let of_job: &[&[u8]] = &[bytes_of(&view)];
        let groups = view.block_count.saturating_mul(GROUP);
        let warps = view.block_count.saturating_mul(32);
        // SAFETY: the blocks of memory are as long as the kernels take them to be, and stay as they are until the stream
        // has been waited for, below. What the data blocks say is checked before it is used.
        let launched = unsafe {
            copy_in(stream, view.input, &self.host.bytes()[ALIGNMENT..][..bytes])
                .and_then(|()| copy_in(stream, view.blocks, cast_slice(plan.blocks)))
                .and_then(|()| copy_in(stream, view.bounds, &padded))
                .and_then(|()| copy_in(stream, view.value_files, cast_slice(plan.value_files)))
                .and_then(|()| fill(stream, view.status, 0, size_of::<Status>()))
                .and_then(|()| {
                    on.put(
                        kernels.check_blocks,
                        kernels.blocks.for_threads(groups),
                        of_job,
                    )
                })
                .and_then(|()| {
                    on.put(
                        kernels.parse_blocks,
                        kernels.blocks.for_threads(warps),
                        of_job,
                    )
                })
                .and_then(|()| on.submit())
                .and_then(|()| {
                    let status = &mut self.host.bytes_mut()[..size_of::<Status>()];
                    copy_out(stream, status, view.status)
                })
        };
        let waited = wait(stream);
        launched?;
        waited?;
        Ok(Some((view, at[6], at[7], at[16])))
    }

    /// Sorts the entries by their keys, by 16 bytes of them first, marks those to keep, and waits.
    fn sort(
        &mut self,
        kernels: &Kernels,
        view: &View,
        other: Address,
        counts: Address,
    ) -> Result<()> {
        let stream = &self.stream;
        let mut on = Launches::new(stream, &mut self.graphs);
        let blocks = kernels.blocks.for_threads(view.entry_count + 1);
        let last = u32::from(view.stride > view.prefix + 8);
        for word in (0..=last).rev() {
            let in_order = u32::from(word != last);
            let arguments: [&[u8]; 3] = [bytes_of(view), bytes_of(&word), bytes_of(&in_order)];
            // SAFETY: as in `parse`: the memory is as long as the view says.
            unsafe {
                on.put(kernels.load_key_words, blocks, &arguments)?;
                let order = [view.order, other];
                kernels
                    .radix
                    .sort(&mut on, order, view.entry_count, counts)?;
            }
        }
        // SAFETY: as above.
        let launched = unsafe {
            on.put(kernels.order_alike, blocks, &[bytes_of(view)])?;
            on.put(kernels.mark_kept, blocks, &[bytes_of(view)])?;
            on.submit().and_then(|()| {
                let status = &mut self.host.bytes_mut()[..size_of::<Status>()];
                copy_out(stream, status, view.status)
            })
        };
        let waited = wait(stream);
        launched?;
        waited
    }

    /// Shows the keys of tombstones, as many at a time as there is room for, and waits for them.
    fn tombstones(
        &mut self,
        kernels: &Kernels,
        view: &View,
        count: u32,
        mut show: impl FnMut(&[u8]),
    ) -> Result<()> {
        let each = view.stride as usize + size_of::<u64>();
        let room = self.made.len().min(self.host.bytes().len()) / each;
        let to = self.made.address();
        let mut stream = &self.stream;
        for first in (0..count as usize).step_by(room) {
            let shown = room.min(count as usize - first);
            let len = shown * each;
            let shown = u32::try_from(shown).expect("of some entries");
            let mut some = *view;
            some.tombstones += (first * size_of::<u32>()) as u64;
            // SAFETY: there is room for so many keys, which stays until the stream has been waited for.
            let launched = unsafe {
                let arguments: [&[u8]; 3] = [bytes_of(&some), bytes_of(&to), bytes_of(&shown)];
                let blocks = kernels.blocks.for_threads(shown);
                let put = stream.put(kernels.copy_tombstones, blocks, &arguments);
                put.and_then(|()| copy_out(stream, &mut self.host.bytes_mut()[..len], to))
            };
            let waited = wait(stream);
            launched?;
            waited?;
            for slot in self.host.bytes()[..len].chunks(each) {
                let (key_len, key) = slot.split_at(size_of::<u64>());
                show(&key[..to_usize(bytemuck::pod_read_unaligned(key_len))]);
            }
        }
        Ok(())
    }

    /// Leaves tombstones out, and lays out what is kept. Gives how many entries, blocks and bytes that makes.
    fn measure(
        &mut self,
        kernels: &Kernels,
        view: &View,
        sums: Address,
        dropped: &[u8],
    ) -> Result<[usize; 3]> {
        let stream = &self.stream;
        let blocks = kernels.blocks.for_threads(view.entry_count + 1);
        let of_job: &[&[u8]] = &[bytes_of(view)];
        let answers = [view.kept, view.starts, view.offsets];
        // SAFETY: as in `parse`; `dropped` stays until the stream has been waited for.
        let launched = unsafe {
            let mut put = || {
                if !dropped.is_empty() {
                    let at = self.made.address();
                    copy_in(stream, at, dropped)?;
                    let count = u32::try_from(dropped.len()).expect("of some entries");
                    let arguments: [&[u8]; 3] = [bytes_of(view), bytes_of(&at), bytes_of(&count)];
                    let blocks = kernels.blocks.for_threads(count);
                    let mut one = stream;
                    one.put(kernels.drop_tombstones, blocks, &arguments)?;
                }
                let mut on = Launches::new(stream, &mut self.graphs);
                kernels.sum(&mut on, view, view.kept, sums)?;
                on.put(kernels.take_kept, blocks, of_job)?;
                kernels.sum(&mut on, view, view.positions, sums)?;
                on.put(kernels.mark_starts, blocks, of_job)?;
                kernels.sum(&mut on, view, view.starts, sums)?;
                on.put(kernels.note_firsts, blocks, of_job)?;
                on.put(kernels.measure_entries, blocks, of_job)?;
                kernels.sum(&mut on, view, view.offsets, sums)?;
                on.submit()?;
                let totals = self.host.bytes_mut()[..24].chunks_mut(8);
                for (total, words) in totals.zip(answers) {
                    copy_out(stream, total, words + 8 * u64::from(view.entry_count))?;
                }
                Ok(())
            };
            put()
        };
        let waited = wait(stream);
        launched?;
        waited?;
        let totals: &[u64] = cast_slice(&self.host.bytes()[..24]);
        Ok([0, 1, 2].map(|nth| to_usize(totals[nth])))
    }

    /// Writes the new blocks, and brings what is said of them to the host. Says whether there was room.
    fn encode(&mut self, kernels: &Kernels, view: &mut View, made: &mut Made) -> Result<bool> {
        let blocks = view.new_blocks as usize;
        let described = blocks * size_of::<OutputBlock>();
        let ends = 2 * view.stride as usize * blocks;
        let mut layout = Layout::default();
        layout.add(size_of::<Status>());
        made.described = layout.add(described);
        made.ends = layout.add(ends);
        made.content = layout.add(made.bytes);
        made.filters = layout.0;
        let has_host = layout.0 <= self.host.bytes().len();
        let mut layout = Layout::default();
        let lens = [
            made.bytes + SLACK,
            described,
            ends,
            blocks * size_of::<u64>(),
            blocks * size_of::<u32>(),
        ];
        let offsets = lens.map(|len| layout.add(len));
        made.on_device = layout.0;
        let room = Room {
            parsed: 0,
            made: made.on_device,
        };
        if !has_host || !self.has_or_wants(room) {
            return Ok(false);
        }
        let at = offsets.map(|offset| self.made.address() + offset as u64);
        [
            view.output,
            view.described,
            view.ends,
            view.seeds,
            view.files,
        ] = at;
        let stream = &self.stream;
        let mut on = Launches::new(stream, &mut self.graphs);
        let of_job: &[&[u8]] = &[bytes_of(view)];
        let threads = |each: u32, count: usize| {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            kernels.blocks.for_threads(count.saturating_mul(each))
        };
        let (of_blocks, rest) = self.host.bytes_mut().split_at_mut(made.ends);
        // SAFETY: as in `parse`. The caller waits for the stream, whatever comes back.
        unsafe {
            let entries = made.entries;
            on.put(kernels.encode_entries, threads(GROUP, entries), of_job)?;
            on.put(kernels.describe_blocks, threads(32, blocks), of_job)?;
            on.submit()?;
            let of_blocks = &mut of_blocks[made.described..][..described];
            copy_out(stream, of_blocks, view.described)?;
            copy_out(stream, &mut rest[..ends], view.ends)?;
        }
        Ok(true)
    }

    /// See [`Task::seal`](super::Task::seal). The caller waits for the stream afterwards, whatever comes back. Says
    /// whether there was room.
    pub fn seal(
        &mut self,
        kernels: &Kernels,
        view: &mut View,
        made: &Made,
        (seeds, files, filters): (&[u64], &[u32], &[FilterRange]),
        uses: usize,
    ) -> Result<bool> {
        let of_uses = uses * size_of::<Use>();
        let of_filters = filter_bytes(filters);
        let uses_at = uses_at(made, filters);
        let has_host = uses_at + of_uses <= self.host.bytes().len();
        let mut layout = Layout(made.on_device);
        let offsets = [of_filters, size_of_val(filters), of_uses].map(|len| layout.add(len));
        let room = Room {
            parsed: 0,
            made: layout.0,
        };
        if !has_host || !self.has_or_wants(room) {
            return Ok(false);
        }
        let stream = &self.stream;
        let at = offsets.map(|offset| self.made.address() + offset as u64);
        [view.filters, view.filter_ranges, view.uses] = at;
        let mut on = Launches::new(stream, &mut self.graphs);
        let of_job: &[&[u8]] = &[bytes_of(view)];
        let blocks = kernels
            .blocks
            .for_threads(view.new_blocks.saturating_mul(GROUP));
        let entries = kernels
            .blocks
            .for_threads(u32::try_from(made.entries).unwrap_or(u32::MAX));
        let (first, answered_uses) = self.host.bytes_mut().split_at_mut(uses_at);
        let (first, answered_filters) = first.split_at_mut(made.filters);
        let (status, content) = first.split_at_mut(made.content);
        // SAFETY: as in `parse`. The caller waits for the stream, whatever comes back, and keeps the slices until then.
        unsafe {
            copy_in(stream, view.seeds, cast_slice(seeds))?;
            copy_in(stream, view.files, cast_slice(files))?;
            copy_in(stream, view.filter_ranges, cast_slice(filters))?;
            fill(stream, view.filters, 0, of_filters)?;
            fill(stream, view.uses, 0, of_uses)?;
            on.put(kernels.seal_blocks, blocks, of_job)?;
            on.put(kernels.fill_filters, entries, of_job)?;
            if uses > 0 {
                on.put(kernels.count_values, entries, of_job)?;
            }
            on.submit()?;
            copy_out(stream, &mut content[..made.bytes], view.output)?;
            copy_out(stream, &mut answered_filters[..of_filters], view.filters)?;
            copy_out(stream, &mut answered_uses[..of_uses], view.uses)?;
            copy_out(stream, &mut status[..size_of::<Status>()], view.status)?;
        }
        Ok(true)
    }
}

/// Bytes of all filters.
pub fn filter_bytes(filters: &[FilterRange]) -> usize {
    let blocks = filters.iter().map(|range| range.blocks as usize);
    blocks.sum::<usize>() * FILTER_BLOCK
}

/// Where it comes back what files have in value files.
pub fn uses_at(made: &Made, filters: &[FilterRange]) -> usize {
    (made.filters + filter_bytes(filters)).next_multiple_of(ALIGNMENT)
}

/// A number of bytes of the host.
fn to_usize(number: u64) -> usize {
    usize::try_from(number).expect("the host has 64 bits")
}
