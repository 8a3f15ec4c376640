//! Batches in device memory. A window of many batches is laid out there before the clock starts;
//! then all of them are issued back to back on one stream, and the clock stops when the stream
//! has come past the last. Answers are fetched and checked after it.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use cust::context::{Context, CurrentContext};
use cust::device::Device;
use cust::event::{Event, EventFlags};
use cust::memory::{CopyDestination, DeviceBuffer, DeviceCopy, mem_get_info};
use cust::stream::{Stream, StreamFlags};
use gphash::{Engine, Index, answer_words};

use super::drive::{Measured, Mode, agree, check_values, on_threads};
use super::plan::{Batch, Change, Plan, Words};
use super::target::Failure;
use super::window::{Place, lay_out, windows};

/// Device memory of the windows of all threads, at most; never more than a quarter of what is free.
const MEMORY: usize = 4 << 30;

/// Runs the batches of each thread from device memory, all threads at once, window by window.
///
/// A read-modify-write writes a value that was made before, as YCSB's does.
pub fn drive<const K: usize, const V: usize>(
    index: &Index<Words<K>, Words<V>>,
    plan: &Plan<Words<K>>,
    mode: Mode,
) -> Result<Measured, Failure>
where
    Words<K>: DeviceCopy,
    Words<V>: DeviceCopy,
{
    let Engine::Cuda { device } = index.stats().engine else {
        return Err("an index whose GPU has failed".into());
    };
    let context = Context::new(Device::get_device(device)?)?;
    let budget = MEMORY.min(mem_get_info()?.0 / 4) / plan.len().max(1);
    let mut threads = plan
        .iter()
        .map(|batches| Thread::new(batches, budget))
        .collect::<Result<Vec<Thread<K, V>>, Failure>>()?;
    let rounds = threads.iter().map(|thread| thread.windows.len()).max();
    let barrier = Barrier::new(threads.len());
    let taken = on_threads(&mut threads, |thread| {
        CurrentContext::set_current(&context)?;
        thread.run(index, mode, rounds.unwrap_or_default(), &barrier)
    })?;
    let elapsed = taken.iter().map(|taken| taken.elapsed).max();
    let latencies = taken.into_iter().flat_map(|taken| taken.batches).collect();
    Ok(Measured::new(
        plan,
        mode,
        elapsed.unwrap_or_default(),
        latencies,
    ))
}

/// What the batches of one thread took.
#[derive(Default)]
struct Taken {
    elapsed: Duration,
    batches: Vec<Duration>,
}

/// One thread: its batches, its stream, and memory for its largest window.
struct Thread<'p, const K: usize, const V: usize>
where
    Words<K>: DeviceCopy,
    Words<V>: DeviceCopy,
{
    windows: Vec<(&'p [Batch<Words<K>>], Vec<Place>)>,
    stream: Stream,
    keys: DeviceBuffer<Words<K>>,
    values: DeviceBuffer<Words<V>>,
    answers: DeviceBuffer<u64>,
    /// One before each batch of a window, and one behind the last.
    events: Vec<Event>,
    /// Where values of a batch are made and checked.
    scratch: Vec<Words<V>>,
}

impl<'p, const K: usize, const V: usize> Thread<'p, K, V>
where
    Words<K>: DeviceCopy,
    Words<V>: DeviceCopy,
{
    fn new(batches: &'p [Batch<Words<K>>], budget: usize) -> Result<Self, Failure> {
        let operation = size_of::<Words<K>>() + size_of::<Words<V>>();
        let sizes: Vec<usize> = batches
            .iter()
            .map(|batch| (batch.reads.len() + batch.writes.len()) * operation)
            .collect();
        let windows: Vec<_> = windows(&sizes, budget)
            .into_iter()
            .map(|window| {
                let batches = &batches[window];
                let lens = batches
                    .iter()
                    .map(|batch| (batch.reads.len(), batch.writes.len()));
                (batches, lay_out(lens, answer_words))
            })
            .collect();
        let ends = |end: fn(&Place) -> usize| {
            let last = |(_, places): &(_, Vec<Place>)| places.last().map(end);
            windows.iter().filter_map(last).max().unwrap_or(0)
        };
        let operands = ends(|place| place.writes.operands.end);
        let answers = ends(|place| place.writes.answers.end);
        let longest = windows.iter().map(|(batches, _)| batches.len()).max();
        let widest = batches
            .iter()
            .map(|batch| batch.reads.len().max(batch.writes.len()));
        // SAFETY: nothing is read before it is written: keys and values that are written are
        // copied in, values that are read and answers are written by the verbs.
        let (keys, values, answers) = unsafe {
            (
                DeviceBuffer::uninitialized(operands)?,
                DeviceBuffer::uninitialized(operands)?,
                DeviceBuffer::uninitialized(answers)?,
            )
        };
        Ok(Self {
            stream: Stream::new(StreamFlags::NON_BLOCKING, None)?,
            keys,
            values,
            answers,
            events: (0..=longest.unwrap_or(0))
                .map(|_| Event::new(EventFlags::DEFAULT))
                .collect::<Result<_, _>>()?,
            scratch: vec![[7; V]; widest.max().unwrap_or(0)],
            windows,
        })
    }

    /// Runs all windows; the threads begin each round together. One that has failed goes on
    /// meeting the others, who would wait for it.
    fn run(
        &mut self,
        index: &Index<Words<K>, Words<V>>,
        mode: Mode,
        rounds: usize,
        barrier: &Barrier,
    ) -> Result<Taken, Failure> {
        let mut outcome = index
            .contains(&[])
            .map(|_| Taken::default())
            .map_err(Failure::from);
        for round in 0..rounds {
            outcome = outcome.and_then(|taken| {
                self.fill(round, mode)?;
                if round == 0 {
                    self.prime(index)?;
                }
                // The operands are copied on a stream that ours does not wait for.
                CurrentContext::synchronize()?;
                Ok(taken)
            });
            barrier.wait();
            outcome = outcome.and_then(|mut taken| {
                self.run_window(index, round, mode, &mut taken)?;
                Ok(taken)
            });
            // Copies of answers would be in the way of those who still run.
            barrier.wait();
            outcome = outcome.and_then(|taken| {
                self.check(round, mode)?;
                Ok(taken)
            });
        }
        outcome
    }

    /// Copies the operands of a window to the device.
    fn fill(&mut self, round: usize, mode: Mode) -> Result<(), Failure> {
        let Some((batches, places)) = self.windows.get(round) else {
            return Ok(());
        };
        for (batch, place) in batches.iter().zip(places) {
            if !batch.reads.is_empty() {
                let at = place.reads.operands.clone();
                self.keys.index(at).copy_from(&batch.reads)?;
            }
            if batch.writes.is_empty() {
                continue;
            }
            let at = place.writes.operands.clone();
            self.keys.index(at.clone()).copy_from(&batch.writes)?;
            if mode.write != Change::Remove {
                let values = &mut self.scratch[..batch.writes.len()];
                for (value, key) in values.iter_mut().zip(&batch.writes) {
                    *value = [7; V];
                    value[0] = key[0];
                }
                self.values.index(at).copy_from(&*values)?;
            }
        }
        Ok(())
    }

    /// Lets the index make what it keeps for a stream, which no batch has to wait for later.
    fn prime(&mut self, index: &Index<Words<K>, Words<V>>) -> Result<(), Failure> {
        let first = self.windows.first().map_or(&[][..], |(_, places)| places);
        let reads = first.iter().map(|place| &place.reads);
        if let Some(longest) = reads.max_by_key(|reads| reads.operands.len())
            && !longest.operands.is_empty()
        {
            CurrentContext::synchronize()?;
            let keys = self.keys.index(longest.operands.clone());
            let mut answers = self.answers.index(longest.answers.clone());
            // SAFETY: the buffers are the thread's, which waits for the stream before it uses them.
            unsafe { index.contains_device_async(&self.stream, &keys, &mut answers)? };
        }
        Ok(())
    }

    /// Issues the batches of a window and waits for the last.
    fn run_window(
        &mut self,
        index: &Index<Words<K>, Words<V>>,
        round: usize,
        mode: Mode,
        taken: &mut Taken,
    ) -> Result<(), Failure> {
        let Some((_, places)) = self.windows.get(round) else {
            return Ok(());
        };
        let stream = &self.stream;
        let began = Instant::now();
        self.events[0].record(stream)?;
        for (place, event) in places.iter().zip(&self.events[1..]) {
            let reads = &place.reads;
            if !reads.operands.is_empty() {
                let keys = self.keys.index(reads.operands.clone());
                let mut values = self.values.index(reads.operands.clone());
                let mut answers = self.answers.index(reads.answers.clone());
                // SAFETY: as above; each batch of a window has places of its own.
                unsafe { index.get_device_async(stream, &keys, &mut values, &mut answers)? };
            }
            let writes = &place.writes;
            if !writes.operands.is_empty() {
                let keys = self.keys.index(writes.operands.clone());
                let values = self.values.index(writes.operands.clone());
                let mut answers = self.answers.index(writes.answers.clone());
                match mode.write {
                    Change::Insert => index.insert_device(stream, &keys, &values, &mut answers)?,
                    Change::Update | Change::Modify => {
                        index.update_device(stream, &keys, &values, &mut answers)?;
                    }
                    Change::Remove => index.remove_device(stream, &keys, &mut answers)?,
                }
            }
            event.record(stream)?;
        }
        stream.synchronize()?;
        taken.elapsed += began.elapsed();
        for (before, after) in self.events.iter().zip(&self.events[1..]).take(places.len()) {
            taken.batches.push(after.elapsed(before)?);
        }
        Ok(())
    }

    /// Checks the number of answers of every call, and of the values of every call a part.
    fn check(&mut self, round: usize, mode: Mode) -> Result<(), Failure> {
        let Some((batches, places)) = self.windows.get(round) else {
            return Ok(());
        };
        let words = places.last().map_or(0, |place| place.writes.answers.end);
        let mut answers = vec![0_u64; words];
        self.answers.index(0..words).copy_to(&mut answers)?;
        let count = |at: &std::ops::Range<usize>| {
            let words = &answers[at.clone()];
            words.iter().map(|word| word.count_ones() as usize).sum()
        };
        for (batch, place) in batches.iter().zip(places) {
            let reads = batch.reads.len();
            let found = if mode.present { reads } else { 0 };
            agree(
                "reads that found a value",
                count(&place.reads.answers),
                found,
            )?;
            let done = count(&place.writes.answers);
            agree("writes that did something", done, batch.writes.len())?;
            if mode.present && reads > 0 {
                // Values that lie side by side take one copy.
                let part = reads.div_ceil(STRIDE);
                let first = place.reads.operands.start;
                let values = &mut self.scratch[..part];
                self.values.index(first..first + part).copy_to(values)?;
                check_values(&batch.reads[..part], values)?;
            }
        }
        Ok(())
    }
}

/// One value in so many is checked against its key.
const STRIDE: usize = 64;
