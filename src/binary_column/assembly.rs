//! A column that threads build together. They read parts of it, and copy each to where it belongs once all before it have
//! come. No thread waits for another one.

use std::collections::BTreeMap;
use std::ops::Range;

use gphash_pool::parallel;
use parking_lot::Mutex;

use super::{
    BinaryColumn, ColumnBuilder, ColumnRoom, Lent, PartCopy, PartTarget, ValuesPart, concat,
};

/// Parts for each thread that may have come before one that is still being read: they are memory.
const EARLY_PARTS_PER_THREAD: usize = 8;

/// What a thread does next.
enum Task<'b> {
    Read(Range<usize>, ValuesPart),
    Copy(PartTarget<'b>, ValuesPart),
}

/// A column on its way, as far as there is room for it.
struct Assembly<'b, E> {
    room: ColumnRoom<'b>,
    len: usize,
    /// Positions that a thread reads at a time.
    part_len: usize,
    /// The first position that nobody reads yet, and that has no target yet.
    next: usize,
    aimed: usize,
    /// By their first positions: parts that have come, of which one before has not.
    early: BTreeMap<usize, ValuesPart>,
    early_max: usize,
    /// Parts that have targets.
    ready: Vec<(PartTarget<'b>, ValuesPart)>,
    /// To be filled again.
    idle: Vec<ValuesPart>,
    /// Nothing more is read for now.
    has_ended: bool,
    outcome: Result<(), E>,
}

impl<'b, E> Assembly<'b, E> {
    /// One of the positions that are left of `len`, from `first` on.
    fn new(
        room: ColumnRoom<'b>,
        (first, len): (usize, usize),
        part_len: usize,
        early_max: usize,
        idle: Vec<ValuesPart>,
    ) -> Self {
        Self {
            room,
            len,
            part_len,
            next: first,
            aimed: first,
            early: BTreeMap::new(),
            early_max,
            ready: Vec::new(),
            idle,
            has_ended: false,
            outcome: Ok(()),
        }
    }

    fn next(&mut self) -> Option<Task<'b>> {
        if let Some((target, part)) = self.ready.pop() {
            return Some(Task::Copy(target, part));
        }
        // A thread that reads an early part takes long. Who waited for it would keep the others from what they may do.
        self.has_ended |= self.early.len() >= self.early_max;
        if self.has_ended || self.next == self.len {
            return None;
        }
        let positions = self.next..self.len.min(self.next + self.part_len);
        self.next = positions.end;
        Some(Task::Read(positions, self.idle.pop().unwrap_or_default()))
    }

    /// Notes what a thread has read from a position on.
    fn note(&mut self, first: usize, read: Result<ValuesPart, E>) {
        match read {
            Ok(part) => drop(self.early.insert(first, part)),
            Err(error) => {
                self.outcome = Err(error);
                self.has_ended = true;
            }
        }
        while let Some(entry) = self.early.first_entry()
            && *entry.key() == self.aimed
        {
            let Some(target) = self.room.take(entry.get()) else {
                self.has_ended = true;
                return;
            };
            self.aimed += entry.get().len();
            self.ready.push((target, entry.remove()));
        }
    }
}

/// A column of `len` values in the buffers of a builder. `read` gives those at so many positions at a time, in place of
/// those of a part. With `is_shared`, the threads of the caller's pool do it together.
///
/// # Errors
/// Those of `read`.
pub fn assemble<E: Send>(
    (len, part_len): (usize, usize),
    is_shared: bool,
    mut builder: ColumnBuilder,
    read: &(impl Fn(Range<usize>, ValuesPart) -> Result<ValuesPart, E> + Sync),
) -> Result<BinaryColumn, E> {
    let threads = match is_shared {
        true => parallel::threads(),
        false => 1,
    };
    let mut idle = Vec::new();
    while builder.len() < len {
        let (first, early_max) = (builder.len(), EARLY_PARTS_PER_THREAD * threads);
        let assembly = Assembly::new(builder.room(), (first, len), part_len, early_max, idle);
        let assembly = Mutex::new(assembly);
        match threads {
            1 => work(&assembly, read),
            _ => drop(parallel::map(0..threads, |_| work(&assembly, read))),
        }
        let left = assembly.into_inner();
        left.outcome?;
        idle = left.idle;
        let parts: Vec<ValuesPart> = left.early.into_values().collect();
        if let [only] = &parts[..]
            && only.len() == len
            && !builder.has_room(only.bytes_len())
        {
            return Ok(concat(parts));
        }
        let copies = builder.add(&parts, Lent::default());
        match threads {
            1 => copies.into_iter().for_each(PartCopy::run),
            _ => drop(parallel::map(copies, PartCopy::run)),
        }
        idle.extend(parts);
    }
    Ok(builder.finish())
}

/// Does what there is to do for a column, until there is nothing.
fn work<E>(
    assembly: &Mutex<Assembly<E>>,
    read: &impl Fn(Range<usize>, ValuesPart) -> Result<ValuesPart, E>,
) {
    let mut task = assembly.lock().next();
    while let Some(doing) = task {
        task = match doing {
            Task::Read(positions, part) => {
                let first = positions.start;
                let read = read(positions, part);
                let mut assembly = assembly.lock();
                assembly.note(first, read);
                assembly.next()
            }
            Task::Copy(target, part) => {
                target.fill(&part);
                let mut assembly = assembly.lock();
                assembly.idle.push(part);
                assembly.next()
            }
        };
    }
}

#[cfg(test)]
mod tests;
