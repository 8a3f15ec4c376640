//! What loom has not.

use std::cell::Cell;
use std::collections::VecDeque;

use loom::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// A lock without poison: a model ends with its first panic.
#[derive(Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// As [`Mutex`].
#[derive(Default)]
pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap()
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap()
    }
}

/// A queue whose calls happen one after another.
pub(crate) struct SegQueue<T>(Mutex<VecDeque<T>>);

impl<T> SegQueue<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    pub(crate) fn push(&self, item: T) {
        self.0.lock().push_back(item);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        self.0.lock().pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

loom::thread_local!(static NUMBER: Cell<usize> = Cell::new(0));

/// The number that the model gave the thread: the same one in every execution.
pub(crate) fn thread_number() -> usize {
    NUMBER.with(Cell::get)
}

/// Gives the thread its number.
#[cfg(test)]
pub(crate) fn be_thread(number: usize) {
    NUMBER.with(|own| own.set(number));
}
