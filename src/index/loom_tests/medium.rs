//! Memory whose words are loom's atomics, behind the trait of a mapped file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Count;

use loom::cell::UnsafeCell;

use crate::layout::{DATA_START, EXTENT_TABLES, PAGE, RESERVED_BUCKETS, align_up};
use crate::pm::{Medium, Priority};
use crate::sync::{AtomicU64, Ordering};
use crate::table::key::reserved_bucket_at;
use crate::{Domain, Result};

/// Words that the buckets of a small level have at most.
const BUCKETS: usize = 32;

/// A medium for models: most words come into being, as zero, when they are first used, so that a
/// model has few of them. Orderings are those of a mapped file. Bytes that are read or written as bytes
/// must not be stored to meanwhile, which loom sees to; the same goes for all stores and a
/// checkpoint.
pub struct Modelled {
    words: std::sync::Mutex<BTreeMap<u64, Arc<Word>>>,
    len: Count,
    domain: Domain,
    /// Superblock, extent tables and metadata: who writes them, not what. Operations on items read none.
    head: Accesses,
    /// Shared by whoever stores, a checkpoint's alone.
    stores: Accesses,
    /// Records that the model has taken away.
    pub used_up: Count,
}

struct Word {
    value: AtomicU64,
    /// Alone for whoever writes the word as bytes.
    bytes: Accesses,
}

impl Word {
    fn shared(&self) -> &AtomicU64 {
        self.bytes.shared();
        &self.value
    }
}

impl Modelled {
    pub fn new(domain: Domain) -> Self {
        let medium = Self {
            words: std::sync::Mutex::default(),
            len: Count::new(DATA_START),
            domain,
            head: Accesses::default(),
            stores: Accesses::default(),
            used_up: Count::new(0),
        };
        medium.make(reserved_bucket_at(0));
        medium.make(reserved_bucket_at(1));
        medium
    }

    /// Makes the words of a bucket or a few. Those that threads share must be there before they
    /// come to them.
    fn make(&self, at: u64) {
        for at in (at..self.len()).step_by(8).take(BUCKETS) {
            self.word(at);
        }
    }

    /// The word at `at`. Its lock is released before loom may change threads.
    fn word(&self, at: u64) -> Arc<Word> {
        assert!(at.is_multiple_of(8) && at < self.len() && !is_head(at));
        let mut words = self.words.lock().unwrap();
        let word = words.entry(at).or_insert_with(|| {
            Arc::new(Word {
                value: AtomicU64::new(0),
                bytes: Accesses::default(),
            })
        });
        Arc::clone(word)
    }

    fn storing(&self) {
        self.stores.shared();
    }
}

/// Accesses of some bytes, of which loom sees whether they keep apart as they must.
#[derive(Default)]
struct Accesses(UnsafeCell<()>);

// SAFETY: there is nothing in it to share.
unsafe impl Sync for Accesses {}

impl Accesses {
    fn shared(&self) {
        self.0.with(|_| ());
    }

    fn alone(&self) {
        self.0.with_mut(|_| ());
    }
}

fn is_head(at: u64) -> bool {
    at < RESERVED_BUCKETS || (EXTENT_TABLES[0]..DATA_START).contains(&at)
}

impl Medium for Modelled {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn load(&self, at: u64) -> u64 {
        self.word(at).shared().load(Ordering::Acquire)
    }

    fn store(&self, at: u64, word: u64) {
        self.storing();
        self.word(at).shared().store(word, Ordering::Release);
    }

    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        let word = self.word(at);
        let answer =
            word.shared()
                .compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst);
        if answer.is_ok() {
            self.storing();
        }
        answer
    }

    fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        self.storing();
        self.word(at).shared().fetch_or(bits, Ordering::SeqCst)
    }

    fn read(&self, at: u64, bytes: &mut [u8]) {
        if is_head(at) {
            self.head.shared();
            bytes.fill(0);
            return;
        }
        for (at, chunk) in (at..).step_by(8).zip(bytes.chunks_exact_mut(8)) {
            let word = self.word(at);
            // SAFETY: loom ends the test if someone stores to the word meanwhile.
            let value = unsafe { word.shared().unsync_load() };
            chunk.copy_from_slice(&value.to_ne_bytes());
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.storing();
        if is_head(at) {
            self.head.alone();
            return;
        }
        for (at, chunk) in (at..).step_by(8).zip(bytes.chunks_exact(8)) {
            let word = self.word(at);
            word.bytes.alone();
            let value = u64::from_ne_bytes(chunk.try_into().unwrap());
            word.value.store(value, Ordering::Relaxed);
        }
    }

    fn write_back(&self, _: u64, _: u64) {}

    fn fence(&self) {}

    fn grow(&self, len: u64) -> Result<()> {
        let before = self.len.fetch_max(align_up(len, PAGE), Ordering::Relaxed);
        self.make(before);
        Ok(())
    }

    fn prepare(&self, _: u64, _: Priority) -> Result<()> {
        Ok(())
    }

    fn prepared(&self) -> u64 {
        self.len()
    }

    fn trim(&self) {}

    fn capture(&self) -> Result<()> {
        self.stores.alone();
        Ok(())
    }

    fn complete(&self) -> Result<()> {
        Ok(())
    }

    fn domain(&self) -> Domain {
        self.domain
    }
}
