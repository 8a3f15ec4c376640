//! Tests of the spill as a whole.

mod crashes;
mod damage;
mod faults;
#[cfg(feature = "cuda")]
mod gpu;
mod lookups;
mod model;
mod pages;
mod rate;
mod slices;
mod threads;
mod value_files;

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use super::*;
use crate::pm::Faults;
use crate::width::to_usize;

/// A catalog in a file of its directory, which is replaced as a whole, as a store's manifest is.
pub struct FileCatalog {
    dir: Dir,
    files: Mutex<BTreeMap<u64, LevelFile>>,
}

const LIST: &str = "LIST";
const NEXT_LIST: &str = "LIST.next";

impl FileCatalog {
    /// The one in the directory; a new one if it has none.
    pub fn open(dir: Dir) -> Result<Arc<Self>> {
        let mut files = BTreeMap::new();
        if dir.join(LIST).exists() {
            let list = dir.open_file(LIST, false)?;
            let mut bytes = vec![0; to_usize(list.len()?)];
            list.read(&mut bytes, 0)?;
            for file in bytes.chunks(20) {
                let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
                let level = u32::from_le_bytes(file[16..20].try_into().unwrap());
                let (number, len) = (word(0), word(8));
                files.insert(number, LevelFile { number, level, len });
            }
        }
        let files = Mutex::new(files);
        Ok(Arc::new(Self { dir, files }))
    }

    pub fn files(&self) -> Vec<LevelFile> {
        self.files.lock().values().copied().collect()
    }
}

impl Catalog for FileCatalog {
    fn edit(&self, added: &[LevelFile], removed: &[u64]) -> Result<()> {
        let mut files = self.files.lock();
        let mut next = files.clone();
        for number in removed {
            assert!(next.remove(number).is_some(), "{number} was not there");
        }
        for &file in added {
            assert_eq!(next.insert(file.number, file), None);
        }
        let bytes: Vec<u8> = next
            .values()
            .flat_map(|file| {
                let (number, len) = (file.number.to_le_bytes(), file.len.to_le_bytes());
                [&number[..], &len, &file.level.to_le_bytes()].concat()
            })
            .collect();
        let mut list = self.dir.create_file(NEXT_LIST)?;
        list.write(&bytes, 0)?;
        list.sync()?;
        list.rename(LIST)?;
        list.sync_dir()?;
        *files = next;
        Ok(())
    }
}

/// What a spill has for each key: a sequence number, and a value or a tombstone.
pub type Model = BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)>;

pub fn options() -> SpillOptions {
    SpillOptions {
        next_number: 1,
        open_files: 8,
        cache_bytes: 1 << 20,
        meta: Arc::new(Clock::new(0)),
        file_bytes: 16 << 10,
        value_bytes_min: 300,
        value_file_bytes: 16 << 10,
        level_bytes: 64 << 10,
        threads: 0,
        pool: Arc::clone(&COMPACTORS),
        gpu: Arc::new(drawn_gpu()),
        rate: Arc::new(RateLimiter::new(None)),
        part_bytes_min: 8 << 10,
        store_id: [7, 8],
    }
}

/// A GPU that does half of the parts with `GPHASH_TEST_COMPACTION=drawn`; else none.
fn drawn_gpu() -> GpuCompaction {
    let budget = crate::engine::DeviceBudget::new(None);
    match std::env::var("GPHASH_TEST_COMPACTION") {
        Ok(sides) if sides == "drawn" => {
            let gpu = crate::Engine::Cuda { device: 0 };
            GpuCompaction::new(gpu, &budget, Some(1 << 20), 2, Some(0.5))
        }
        _ => GpuCompaction::new(crate::Engine::Cpu, &budget, None, 2, None),
    }
}

impl Spill {
    /// Executes one compaction, if one is due that no thread is at; says whether there was one.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged), or what the operating system answers. What it holds
    /// is what it was.
    pub fn compact(&self) -> Result<bool> {
        let level_bytes = self.levels.options().level_bytes;
        let job = self
            .levels
            .plan()
            .pick(&self.version(), level_bytes, &HashSet::new());
        match job {
            Some(job) => self.levels.finish(&job).map(|()| true),
            None => Ok(false),
        }
    }
}

/// Opens the spill of a directory.
pub fn open(
    path: &std::path::Path,
    faults: Option<Arc<dyn Faults>>,
    options: SpillOptions,
) -> Result<Spill> {
    let dir = Dir::at(path.to_path_buf(), faults);
    let catalog = FileCatalog::open(dir.clone())?;
    let files = catalog.files();
    Spill::open(dir, &files, catalog, options)
}

/// Those that compact, of all tests: they open thousands of spills.
static COMPACTORS: LazyLock<Arc<Pool>> = LazyLock::new(|| Arc::new(Pool::new("compaction", 2)));

/// Those that add are no threads that compact.
static ADDERS: LazyLock<Pool> = LazyLock::new(|| Pool::new("addition", 1));

/// Adds changes to a spill.
pub fn add(spill: &Spill, changes: &Model) -> Result<()> {
    let entries = changes.iter().map(|(key, (sequence, value))| Entry {
        key,
        sequence: *sequence,
        value: value.as_deref().map(Value::Inline),
    });
    spill.add(&ADDERS, vec![part_of(entries)]).map(|_| ())
}

/// A part of an addition that writes these entries.
pub fn part_of<'e>(
    entries: impl IntoIterator<Item = Entry<'e>>,
) -> impl FnOnce(WriteEntry) -> Result<()> {
    |write| entries.into_iter().try_for_each(write)
}

/// A page of so many items.
pub fn page(
    version: &LsmVersion,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    from_end: bool,
    items: usize,
) -> Result<Page> {
    let of = PageOf {
        range,
        from_end,
        items,
        bytes: 1 << 20,
        with_values: true,
    };
    Page::read([version], &mut Vec::new().into_iter(), of)
}

/// All that a version has, read from one end, in pages.
pub fn contents(version: &LsmVersion, from_end: bool, limit: usize) -> Result<Model> {
    let mut all = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    loop {
        let from = last
            .as_ref()
            .map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
        let range = match from_end {
            false => (from, Bound::Unbounded),
            true => (Bound::Unbounded, from),
        };
        let page = page(version, range, from_end, limit)?;
        assert!(page.is_last || !page.items.is_empty());
        last = page.items.last().map(|(key, _)| key.clone());
        all.extend(page.items);
        if page.is_last {
            break;
        }
    }
    let keys: Vec<&Vec<u8>> = all.iter().map(|(key, _)| key).collect();
    assert!(match from_end {
        false => keys.is_sorted_by(|a, b| a < b),
        true => keys.is_sorted_by(|a, b| a > b),
    });
    let with_sequence = |(key, value): page::Item| {
        let found = version.get(&key)?.expect("a page has it");
        assert!(found.1 == value);
        Ok((key, found))
    };
    all.into_iter().map(with_sequence).collect()
}

/// What of it is left of the keys when tombstones that hide nothing are left out.
pub fn values(model: &Model) -> Model {
    let is_value = |(_, (_, value)): &(&Vec<u8>, &(u64, Option<Vec<u8>>))| value.is_some();
    let owned = |(key, item): (&Vec<u8>, &(u64, Option<Vec<u8>>))| (key.clone(), item.clone());
    model.iter().filter(is_value).map(owned).collect()
}

pub use std::ops::Bound;

/// The seed of a random test, which says how to repeat it.
pub fn seed() -> u64 {
    let seed = match std::env::var("GPHASH_TEST_SEED") {
        Ok(seed) => seed.parse().expect("GPHASH_TEST_SEED"),
        Err(_) => rand::random(),
    };
    println!("GPHASH_TEST_SEED={seed}");
    seed
}
