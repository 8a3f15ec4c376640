//! What loom has not.

use std::cell::Cell;
use std::collections::VecDeque;

use loom::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// A lock without poison: a model ends with its first panic.
#[derive(Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock of this value.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    /// The lock, unless somebody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// As [`Mutex`].
#[derive(Default)]
pub struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock of this value.
    pub fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
    }

    /// Waits for the lock, beside other readers.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap()
    }

    /// Waits for the lock, alone.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap()
    }
}

/// A queue whose calls happen one after another.
pub struct SegQueue<T>(Mutex<VecDeque<T>>);

impl<T> SegQueue<T> {
    /// An empty one.
    pub fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Puts an item behind all others.
    pub fn push(&self, item: T) {
        self.0.lock().push_back(item);
    }

    /// Takes the first item.
    pub fn pop(&self) -> Option<T> {
        self.0.lock().pop_front()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}

loom::thread_local!(static NUMBER: Cell<usize> = Cell::new(0));

/// The number that the model gave the thread: the same one in every execution.
pub fn thread_number() -> usize {
    NUMBER.with(Cell::get)
}

/// Gives the thread its number.
pub fn be_thread(number: usize) {
    NUMBER.with(|own| own.set(number));
}
