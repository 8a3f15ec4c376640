//! Checking all that an open store holds.

use std::ops::Bound;
use std::time::Instant;

use crate::pool::run_off_pool;
use crate::store::Store;
use crate::store::files::manifest;
use crate::store::inner::StoreInner;
use crate::store::lifecycle::report::{FileReport, StoreFile, StoreReport, tell};
use crate::store::ordered::view::OrderedViewState;
use crate::store::range::{Keys, PagesOf, Writes};
use crate::store::store_ref::StoreRef;
use crate::store::wal::inspect::{Extent, inspect};
use crate::{Progress, ReportState};

/// Items after which progress is told.
const PROGRESS_ITEMS: u64 = 4096;

impl Store {
    /// Checks every checksum of every file of the store, and every pointer from the index to a record. That is the
    /// manifest, all records of the log, all blocks of the sorted files, the superblock and the extents of the index,
    /// and each item's slot and record. If there is an ordered view, it must have the keys of the index in order. It
    /// changes nothing. `progress` is called now and then, from any thread.
    ///
    /// Others may read and change the store meanwhile. What they write after the call has begun may
    /// be checked or not; what is there all the while is. It reads all bytes of the index's records and of
    /// the log once, with all threads of the machine, one segment of the log in memory at a time. The
    /// ordered view is compared by an iterator, for whose sake the values that change meanwhile are kept in
    /// memory; see [`range`](Self::range).
    ///
    /// In the domain `Checkpointed` the index is checked as it is in memory. Pages that have
    /// not changed since they were last needed are read from the file.
    ///
    /// The states in the report are [`Clean`](ReportState::Clean) or [`Damaged`](ReportState::Damaged).
    /// A file that cannot be read is damaged. What can be saved of a damaged store,
    /// [`recover`](crate::store::recover) saves.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let report = store.verify(&|_| {});
    /// assert_eq!(report.state, gphash::ReportState::Clean, "{report:?}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn verify(&self, progress: &(dyn Fn(Progress) + Sync)) -> StoreReport {
        run_off_pool(|| self.verify_all(progress))
    }

    fn verify_all(&self, progress: &(dyn Fn(Progress) + Sync)) -> StoreReport {
        let started = Instant::now();
        let partitions = self.partitions().all();
        let states = || partitions.iter().map(|partition| &partition.state);
        let mut files: Vec<FileReport> = Vec::new();
        for state in states() {
            files.extend(state.verify_manifest());
            files.push(state.verify_index(progress));
            files.extend(state.verify_log(progress));
            files.extend(state.verify_spill(progress));
        }
        let mut report = StoreReport::new(files);
        report.items = states().map(|state| state.tiers.keys()).sum();
        report.view_damage = self.verify_order(progress).err().into_iter().collect();
        report.judge();
        report.elapsed = started.elapsed();
        report
    }

    /// Compares the ordered view with the indexes; says what is wrong.
    fn verify_order(&self, progress: &(dyn Fn(Progress) + Sync)) -> Result<(), String> {
        let partitions = self.partitions();
        let states = || partitions.all().iter().map(|partition| &partition.state);
        let snapshot = {
            let _alone = partitions.alone();
            let order = partitions.shared().view.read();
            let OrderedViewState::Ready(view) = &*order else {
                return Ok(());
            };
            let keys = view.len();
            let items: u64 = states().map(|state| state.tiers.table.len()).sum();
            if keys != items {
                return Err(format!("{keys} keys in order; the index has {items} items"));
            }
            partitions.snapshot()
        };
        let keys = states().map(|state| state.tiers.keys()).sum();
        let all = PagesOf {
            store: StoreRef::Borrowed(self),
            snapshot,
            range: (Bound::Unbounded, Bound::Unbounded),
            writes: Writes::new(),
        };
        let mut last: Option<Vec<u8>> = None;
        let mut found = 0;
        for key in Keys::new(all) {
            let key = key.map_err(|error| error.to_string())?;
            if last.as_ref().is_some_and(|last| *last >= key) {
                return Err(format!("{key:02x?} stands behind {last:02x?}"));
            }
            last = Some(key);
            found += 1;
            if found % PROGRESS_ITEMS == 0 {
                tell(progress, "order", found.min(keys), keys);
            }
        }
        Ok(())
    }
}

impl StoreInner {
    fn verify_manifest(&self) -> [FileReport; 2] {
        manifest::NAMES.map(|name| {
            let root = self.store_dir.root();
            let mut file = FileReport::new(root, &root.join(name), StoreFile::Manifest);
            file.checked = 1;
            if let Err(error) = self.store_dir.check_manifest(name) {
                file.complain(error);
            }
            file
        })
    }

    fn verify_index(&self, progress: &(dyn Fn(Progress) + Sync)) -> FileReport {
        let mut file = FileReport::new(
            self.store_dir.root(),
            self.tiers.table.path(),
            StoreFile::Index,
        );
        let verified = self.tiers.table.verify(progress);
        file.checked = verified.items;
        for damage in verified.damage {
            file.complain(damage);
        }
        file
    }

    fn verify_log(&self, progress: &(dyn Fn(Progress) + Sync)) -> Vec<FileReport> {
        let (manifest, next) = self.log.written();
        let still_counts = |number| self.store_dir.manifest().first_segment <= number;
        let told = |done, total| tell(progress, "log", done, total);
        let extent = Extent::Upto(next);
        let dir = self.store_dir.log();
        let root = self.store_dir.root();
        match inspect(dir, &manifest, extent, &still_counts, &told) {
            Ok((segments, _)) => segments
                .iter()
                .map(|found| FileReport::segment(root, found, ReportState::Clean))
                .collect(),
            Err(error) => {
                let mut file = FileReport::new(root, dir.path(), StoreFile::Log);
                file.complain(error);
                vec![file]
            }
        }
    }

    fn verify_spill(&self, progress: &(dyn Fn(Progress) + Sync)) -> Vec<FileReport> {
        let told = |done, total| tell(progress, "sorted files", done, total);
        let root = self.store_dir.root();
        let files = self.tiers.spill.verify(&told);
        let files = files.iter();
        files
            .map(|(path, checked)| FileReport::sst(root, path, checked))
            .collect()
    }
}
