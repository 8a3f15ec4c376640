//! What launches are told of the table, and who holds it.

use std::ops::Deref;

use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use super::DeviceTable;
use super::reader_gate::ReadGuard;
use crate::gpu::abi::TableView;

/// The view while a lookup is under way.
pub struct HeldView<'a> {
    _guard: ReadGuard<'a>,
    view: RwLockReadGuard<'a, TableView>,
}

impl Deref for HeldView<'_> {
    type Target = TableView;

    fn deref(&self) -> &TableView {
        &self.view
    }
}

impl DeviceTable {
    /// The view, for a launch of whoever holds the writer's lock.
    pub fn view_now(&self) -> TableView {
        *self.view.read()
    }

    /// The view for a lookup, kept as it is until the guard is dropped.
    pub fn hold_view(&self) -> HeldView<'_> {
        HeldView {
            _guard: self.reader_gate.enter(),
            view: self.view.read(),
        }
    }

    /// The view, when no lookup is under way.
    pub fn view_alone(&self) -> RwLockWriteGuard<'_, TableView> {
        let view = self.view.write();
        self.readers.wait();
        view
    }
}
