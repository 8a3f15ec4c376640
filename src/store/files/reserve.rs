//! Room on the disk that a store holds for what must go on when there is none: `RESERVE`, a file of each partition
//! of which nothing but its length matters.
//!
//! How much it must hold for whom, [`room`](crate::store::commit::room) says. On a full disk it is given back to the disk for what
//! takes nothing for long: deletions, a checkpoint, the manifest, closing. Others who write to the disk may be
//! quicker to take this room; then these fail as they would have without it.
//!
//! The partitions of a store are on one disk, so what they hold is one sum. Nothing is added to any of them unless
//! each holds what it needs. What one holds beyond that goes to another one that has too little. While one of them
//! gives something back, no other one holds more.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::layout::PAGE;
use crate::pm::Dir;
use crate::store::files::dir::is_full;
use crate::{Error, Result};

/// Its name in the directory of a partition.
pub const RESERVE: &str = "RESERVE";

/// Bytes beside those of journal and index that must be left after what adds to the store.
pub const ROOM_AFTER_ADDITION_BYTES: u64 = 256 << 10;

/// The part of them that deletions leave to a checkpoint: a segment and the manifest.
pub const ROOM_AFTER_DELETION_BYTES: u64 = 96 << 10;

/// What is left to a checkpoint by an index that must grow for what is in the log already.
pub const ROOM_AFTER_GROWTH_BYTES: u64 = 32 << 10;

/// What it is made longer by, if the disk has so much.
const RESERVE_STEP_BYTES: u64 = 1 << 20;

/// What for a partition holds room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It adds to the store, and leaves all partitions what they need.
    Addition,
    /// It has made room by a checkpoint. It waits for those who give something back.
    Refill,
    /// It takes what was held for it. It waits as well: what they work with may be all that is free, for a moment.
    Deletion,
    /// Items leave the index for files of so many bytes, beside what adds to the partition.
    Eviction { files: u64 },
}

impl Purpose {
    /// Whether it waits for those who give something back. Nobody may have a part in their work who does.
    fn waits(self) -> bool {
        matches!(self, Self::Refill | Self::Deletion)
    }
}

/// What a partition holds.
#[derive(Debug)]
struct Share {
    root: Dir,
    bytes: Mutex<ShareBytes>,
}

#[derive(Debug, Clone, Copy)]
struct ShareBytes {
    held: u64,
    /// What it must hold before anything is added to the store.
    needed: u64,
}

/// What all partitions of a store hold.
#[derive(Debug)]
pub struct Shares {
    /// That of each partition, once it is open.
    all: Box<[OnceLock<Arc<Share>>]>,
    /// How many give something back now. Locked by whoever holds more while the disk is full, or nearly.
    giving: Mutex<usize>,
    /// Read by whoever holds more while it is not. Whoever begins to give something back waits for these alone.
    extending: RwLock<()>,
    all_given: Condvar,
    /// Nothing is added before each partition was found to hold what it needs.
    is_tight: AtomicBool,
}

/// The reserve of a partition; see the [module](self).
#[derive(Debug)]
pub struct Reserve {
    own: Arc<Share>,
    shares: Arc<Shares>,
}

/// Somebody gives something back, until dropped.
pub struct Giving<'r>(&'r Reserve);

impl Shares {
    /// Those of so many partitions, none of which is open yet.
    pub fn new(partitions: u32) -> Arc<Self> {
        Arc::new(Self {
            all: (0..partitions).map(|_| OnceLock::new()).collect(),
            giving: Mutex::new(0),
            extending: RwLock::new(()),
            all_given: Condvar::new(),
            is_tight: AtomicBool::new(false),
        })
    }
}

impl Reserve {
    /// What is there of it in the directory of partition `number`, of a store of which these are all `shares`.
    pub fn find(root: &Dir, number: u32, shares: Arc<Shares>) -> Result<Self> {
        let held = match root.has(RESERVE)? {
            true => root.len_of(RESERVE)?,
            false => 0,
        };
        let own = Arc::new(Share {
            root: root.clone(),
            // Nobody else takes of it before it is known what must stay.
            bytes: Mutex::new(ShareBytes { held, needed: held }),
        });
        let is_first = shares.all[number as usize].set(Arc::clone(&own)).is_ok();
        debug_assert!(is_first);
        Ok(Self { own, shares })
    }

    /// What all partitions hold.
    pub fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }

    /// Bytes that it holds.
    pub fn held(&self) -> u64 {
        self.own.bytes.lock().held
    }

    fn others(&self) -> impl Iterator<Item = &Share> {
        let all = self.shares.all.iter().filter_map(OnceLock::get);
        let others = all.filter(|share| !Arc::ptr_eq(share, &self.own));
        others.map(|share| &**share)
    }

    /// Says that the disk has no room for what adds to the store.
    pub fn set_tight(&self) {
        // Written seldom: all partitions read it before each change.
        if !self.is_tight() {
            self.shares.is_tight.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the disk had no room for what adds to the store, or the reserve was given back, and nothing was added
    /// since.
    pub fn is_tight(&self) -> bool {
        self.shares.is_tight.load(Ordering::Relaxed)
    }

    /// Says what it must hold before anything is added to the store, whether it does or not.
    pub fn need(&self, bytes: u64) {
        let mut own = self.own.bytes.lock();
        own.needed = bytes;
        if own.held < bytes {
            // Else files that are compacted could take it.
            self.set_tight();
        }
    }

    /// Whether it holds so many bytes, as far as is known without a look at others.
    pub fn is_held(&self, bytes: u64, purpose: Purpose) -> bool {
        let is_known = purpose == Purpose::Deletion || !self.is_tight();
        is_known && self.own.bytes.lock().is_held(bytes, purpose)
    }

    /// Sees to it that it holds so many bytes.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and the like.
    pub fn hold(&self, bytes: u64, purpose: Purpose) -> Result<()> {
        let bytes = self.own.bytes.lock().wanted(bytes, purpose);
        if self.extend_beside_others(bytes, purpose) {
            return Ok(());
        }
        let (_none_extends, giving) = loop {
            // Else what one of them has had for a moment seems not to be there.
            let none_extends = self.shares.extending.write();
            let mut giving = self.shares.giving.lock();
            if !purpose.waits() || *giving == 0 {
                break (none_extends, giving);
            }
            // Whoever gives something back may wait for somebody who begins to.
            drop(none_extends);
            self.shares.all_given.wait(&mut giving);
        };
        if *giving > 0 {
            // An attempt would take all that is free for a moment.
            return Err(Error::NoSpace {
                path: self.own.root.join(RESERVE),
                needed: bytes.saturating_sub(self.held()),
                source: Arc::new(io::ErrorKind::StorageFull.into()),
            });
        }
        let attempt = || {
            self.own.extend(bytes, RESERVE_STEP_BYTES)?;
            match purpose {
                Purpose::Deletion => Ok(()),
                _ => self.others().try_for_each(Share::restore),
            }
        };
        let before = self.held();
        let mut held = attempt();
        if is_full(&held) && self.cut_excess(bytes) {
            held = attempt();
        }
        let mut own = self.own.bytes.lock();
        if held.is_err() {
            // Others have not enough, whom it would have been for.
            let keep = own.needed.next_multiple_of(PAGE).max(before);
            self.own.shrink(&mut own, keep);
            return held;
        }
        own.is_held(bytes, purpose);
        if purpose != Purpose::Deletion {
            self.shares.is_tight.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Holds more while other partitions do: to allocate room takes long. `false` if the disk is full, or nearly.
    fn extend_beside_others(&self, bytes: u64, purpose: Purpose) -> bool {
        let _extending = self.shares.extending.read();
        // All hold what they need then.
        let has_room = !self.is_tight() && *self.shares.giving.lock() == 0;
        has_room
            && self.own.extend(bytes, RESERVE_STEP_BYTES).is_ok()
            && self.own.bytes.lock().is_held(bytes, purpose)
    }

    /// Gives back what each partition holds beyond its needs, which are to be so many bytes for this one; `false` if there
    /// is nothing.
    fn cut_excess(&self, bytes: u64) -> bool {
        let cut = |share: &Share, wanted: u64| {
            let mut of_share = share.bytes.lock();
            let keep = of_share.needed.max(wanted).next_multiple_of(PAGE);
            share.shrink(&mut of_share, keep)
        };
        let is_own_cut = cut(&self.own, bytes);
        self.others().filter(|share| cut(share, 0)).count() > 0 || is_own_cut
    }

    /// Holds as much of so many bytes as the disk has; of a store of several partitions no more than it needs, since others
    /// may lack the rest.
    pub fn hold_most(&self, bytes: u64) {
        let mut giving = self.shares.giving.lock();
        while *giving > 0 {
            self.shares.all_given.wait(&mut giving);
        }
        let ShareBytes { mut held, needed } = *self.own.bytes.lock();
        let (bytes, step) = match self.others().next() {
            None => (bytes, RESERVE_STEP_BYTES),
            Some(_) => (bytes.min(needed), PAGE),
        };
        let mut missing = bytes.saturating_sub(held);
        while missing >= PAGE {
            let wanted = held + missing.min(bytes.saturating_sub(held));
            if self.own.extend(wanted, step).is_err() {
                missing /= 2;
                continue;
            }
            held = self.held();
            if held >= bytes {
                return;
            }
        }
    }

    /// Gives back what it holds far beyond so many bytes.
    pub fn cut(&self, bytes: u64) {
        let most = bytes.next_multiple_of(RESERVE_STEP_BYTES) + RESERVE_STEP_BYTES;
        let mut own = self.own.bytes.lock();
        let keep = most.max(own.needed);
        self.own.shrink(&mut own, keep);
    }

    /// Says that it needs no more than so many bytes. Nobody adds to the partition meanwhile.
    pub fn need_at_most(&self, bytes: u64) {
        let mut own = self.own.bytes.lock();
        own.needed = own.needed.min(bytes);
    }

    /// Gives the disk back so many bytes that were held for files.
    pub fn release(&self, files: u64) {
        let mut own = self.own.bytes.lock();
        let keep = own.held.saturating_sub(files).max(own.needed);
        self.own.shrink(&mut own, keep);
    }

    /// Begins to give something back that it needs later.
    pub fn give(&self) -> Giving<'_> {
        let _none_extends = self.shares.extending.write();
        let mut giving = self.shares.giving.lock();
        *giving += 1;
        // Before somebody else who adds to the store finds that all is held.
        self.set_tight();
        Giving(self)
    }
}

impl Giving<'_> {
    /// Gives the disk back what the reserve holds beyond so many bytes; `false` if there is nothing to give.
    pub fn shrink(&self, keep: u64) -> bool {
        let own = &self.0.own;
        own.shrink(&mut own.bytes.lock(), keep)
    }
}

impl Drop for Giving<'_> {
    fn drop(&mut self) {
        let shares = &self.0.shares;
        let mut giving = shares.giving.lock();
        *giving -= 1;
        if *giving == 0 {
            shares.all_given.notify_all();
        }
    }
}

impl ShareBytes {
    /// Bytes that must be held so that there are so many for a purpose.
    fn wanted(&self, bytes: u64, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Eviction { files } => bytes.max(self.needed + files),
            _ => bytes,
        }
    }

    /// Whether so many bytes are held, which nobody else may take then.
    fn is_held(&mut self, bytes: u64, purpose: Purpose) -> bool {
        let bytes = self.wanted(bytes, purpose);
        let is_held = self.held >= bytes;
        if is_held {
            self.needed = match purpose {
                Purpose::Addition => bytes,
                // Who has made room does not know what others are about to add.
                Purpose::Refill | Purpose::Deletion => bytes.max(self.needed),
                Purpose::Eviction { files } => bytes - files,
            };
        }
        is_held
    }
}

impl Share {
    /// Sees to it that it holds what it needs.
    fn restore(&self) -> Result<()> {
        let needed = self.bytes.lock().needed;
        self.extend(needed, PAGE)
    }

    /// Sees to it that it holds so many bytes, or a multiple of `step` if the disk has so much. The caller has what says
    /// who gives something back.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and the like; it holds what it did.
    fn extend(&self, bytes: u64, step: u64) -> Result<()> {
        let mut own = self.bytes.lock();
        if own.held >= bytes {
            return Ok(());
        }
        let (file, held) = match self.root.has(RESERVE)? {
            true => (self.root.open_file(RESERVE, true)?, own.held),
            false => (self.root.create_file(RESERVE)?, 0),
        };
        let least = bytes.next_multiple_of(PAGE);
        let wanted = match held {
            0 => least,
            _ => bytes.next_multiple_of(step),
        };
        let allocate = |to| {
            let allocated = file.allocate(held, to);
            if allocated.is_err() {
                // A part of it may have been had.
                let _ = file.set_len(held);
            }
            allocated.map(|()| to)
        };
        let allocated = allocate(wanted).or_else(|error| match wanted > least {
            true => allocate(least),
            false => Err(error),
        });
        own.held = allocated.map_err(|source| {
            match Error::io(file.path(), "reserve room in", source) {
                Error::NoSpace { path, source, .. } => Error::NoSpace {
                    path,
                    needed: least - held,
                    source,
                },
                error => error,
            }
        })?;
        Ok(())
    }

    /// Gives the disk back what it holds beyond so many bytes; `false` if there is nothing to give.
    fn shrink(&self, own: &mut ShareBytes, keep: u64) -> bool {
        if own.held <= keep {
            return false;
        }
        let cut = self.root.open_file(RESERVE, true).and_then(|file| {
            file.set_len(keep)
                .map_err(|source| Error::io(file.path(), "cut", source))
        });
        match cut {
            Ok(()) => own.held = keep,
            Err(ref error) => tracing::warn!(%error, "the reserve stays"),
        }
        cut.is_ok()
    }
}

#[cfg(test)]
mod tests;
