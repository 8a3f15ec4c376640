//! Making good what a salvage cannot do without: a manifest and an index. What they said is taken from
//! the files that are whole, as far as these say it.
//!
//! Nothing is removed before the manifest that no longer needs it is durable, so a salvage that is cut
//! short leaves the next one all that it had itself.

use std::collections::BTreeMap;

use super::report::StoreFile;
use crate::index::bytes::BytesIndex;
use crate::index::repair;
use crate::layout::Mark;
use crate::lsm::gather;
use crate::pm::{Dir, MapOptions};
use crate::store::files::dir::{INDEX, INDEX_JOURNAL, LOCK, LOG, SPILL};
use crate::store::files::identity;
use crate::store::files::manifest;
use crate::store::files::manifest::{Copies, Manifest, PARTITIONS_MAX};
use crate::store::files::segment;
use crate::store::files::unopened;
use crate::store::wal::inspect;
use crate::{Error, Options, Progress, Repair, Result};

/// What was made good, and what could not be found.
#[derive(Debug)]
pub struct Note {
    /// Of which file.
    pub kind: StoreFile,
    pub text: String,
}

/// What a partition is, where its own manifest does not tell.
pub struct Identity {
    /// How many there are, if the manifest of the first one tells.
    pub partitions: Option<u32>,
    pub partition: u32,
    /// The id of its files, if the manifest of the first one tells.
    pub store_id: Option<[u64; 2]>,
}

/// Makes the manifest and the index of a partition in `root` such that a salvage can go on with the rest.
///
/// # Errors
/// Those of [`directory::inspect`] if no file says that there is a store, [`Error::InUse`], and what the
/// operating system answers.
pub fn prepare(
    root: &Dir,
    identity: &Identity,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Note>> {
    let lock = match root.has(LOCK)? {
        true => root.open_file(LOCK, true)?,
        false => match known(root, identity)? {
            Err(error) if votes(root, None)?.is_empty() => return Err(error),
            _ => root.open_or_create_file(LOCK)?,
        },
    };
    lock.lock()?;
    let mut notes = Vec::new();
    let mark = match unopened::mark(root) {
        Err(error) if error.is_refusal() => return Err(error),
        mark => mark.unwrap_or_default(),
    };
    // Before anything changes: it may be of a later format.
    let mut why = why_not(root, progress)?;
    let manifest = match known(root, identity)? {
        Ok(Copies { manifest, .. }) if !manifest.complete => return Ok(notes),
        Ok(Copies { manifest, .. }) if identity.is_foreign(&manifest, &votes(root, mark)?) => {
            let text = "another store's; made anew from the other files".into();
            notes.push(note(StoreFile::Manifest, text));
            make_manifest(root, None, identity, mark, &mut notes)?
        }
        Ok(Copies { manifest, .. }) if !is_older(&manifest, mark) => {
            match identity.is_misnumbered(&manifest) {
                true => renumber(root, manifest, identity, &mut notes)?,
                false => manifest,
            }
        }
        Ok(Copies { manifest, .. }) => {
            let text = format!(
                "an older copy, of generation {}; made anew from the other files",
                manifest.generation
            );
            notes.push(note(StoreFile::Manifest, text));
            make_manifest(root, Some(&manifest), identity, mark, &mut notes)?
        }
        Err(error) => {
            if votes(root, mark)?.is_empty() {
                return Err(error);
            }
            notes.push(note(
                StoreFile::Manifest,
                "made anew from the other files".into(),
            ));
            make_manifest(root, None, identity, mark, &mut notes)?
        }
    };
    root.within(LOG).create()?;
    if mark.is_some_and(|mark| mark.store_id != manifest.store_id) {
        why = Some("the index of another store".into());
    }
    if let Some(why) = why {
        make_index(root, manifest, &why, &mut notes)?;
    }
    Ok(notes)
}

fn note(kind: StoreFile, text: String) -> Note {
    Note { kind, text }
}

/// The manifest, or what is wrong with it.
fn known(root: &Dir, identity: &Identity) -> Result<Result<Copies>> {
    match unopened::inspect(root) {
        Ok(Some(copies)) => Ok(Ok(copies)),
        Ok(None) if identity.partition > 0 => Err(identity::missing_partition(root)),
        Ok(None) => Err(unopened::no_store(root)),
        Err(error @ (Error::Damaged { .. } | Error::Missing { .. } | Error::Foreign { .. })) => {
            Ok(Err(error))
        }
        Err(error) => Err(error),
    }
}

impl Identity {
    /// How many partitions there are.
    fn partitions(&self, root: &Dir) -> Result<u32> {
        match self.partitions {
            Some(partitions) => Ok(partitions),
            None => guessed_partitions(root),
        }
    }

    /// Whether a manifest is another store's: other files say that they belong to one, and none to that of the
    /// manifest.
    fn is_foreign(&self, manifest: &Manifest, votes: &BTreeMap<[u64; 2], usize>) -> bool {
        match self.store_id {
            Some(store_id) => manifest.store_id != store_id && votes.contains_key(&store_id),
            None => !votes.is_empty() && !votes.contains_key(&manifest.store_id),
        }
    }

    /// Whether a manifest is this partition's, and has the number of another one. A salvage that took the partition
    /// for a store has made such ones. A wrong count of partitions alone says nothing: it may be the first one's that
    /// is wrong.
    fn is_misnumbered(&self, manifest: &Manifest) -> bool {
        self.store_id == Some(manifest.store_id) && manifest.partition != self.partition
    }
}

/// How many partitions a store has as far as its directory and the other partitions say, for one that has lost its
/// manifest.
fn guessed_partitions(root: &Dir) -> Result<u32> {
    let names = root.names()?;
    let mut guessed = 1;
    for number in 1..PARTITIONS_MAX {
        let name = identity::partition_name(number);
        // Whatever else has such a name is no partition.
        if !names.contains(&name) || !root.join(&name).is_dir() {
            continue;
        }
        guessed = guessed.max(number + 1);
        // The last ones may be missing. With fewer partitions keys would be searched for in others than have them.
        match unopened::inspect(&root.within(&name)) {
            Ok(Some(Copies { manifest, .. })) if manifest.partition == number => {
                guessed = guessed.max(manifest.partitions);
            }
            Err(error) if error.is_no_damage() => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(guessed)
}

/// Gives a manifest the number of its partition. What it says of the files holds.
fn renumber(
    root: &Dir,
    manifest: Manifest,
    identity: &Identity,
    notes: &mut Vec<Note>,
) -> Result<Manifest> {
    let (partitions, partition) = (identity.partitions(root)?, identity.partition);
    let text = format!(
        "partition {} of {}; made anew as partition {partition} of {partitions}",
        manifest.partition, manifest.partitions
    );
    notes.push(note(StoreFile::Manifest, text));
    let manifest = Manifest {
        partitions,
        partition,
        others: vec![0; manifest::others(partitions, partition)],
        generation: manifest.generation + 1,
        salvaged: true,
        ..manifest
    };
    manifest.write(root)?;
    Ok(manifest)
}

fn is_older(manifest: &Manifest, mark: Option<Mark>) -> bool {
    mark.is_some_and(|mark| {
        mark.store_id == manifest.store_id && mark.generation > manifest.generation
    })
}

/// The stores that files say they belong to, and how many do.
fn votes(root: &Dir, mark: Option<Mark>) -> Result<BTreeMap<[u64; 2], usize>> {
    let mut votes = BTreeMap::new();
    let mut vote = |store_id| *votes.entry(store_id).or_insert(0) += 1;
    if let Some(mark) = mark {
        vote(mark.store_id);
    }
    let spill = root.within(SPILL);
    for number in gather::numbers(&spill)? {
        gather::store_of(&spill, number)?.map(&mut vote);
    }
    let log = root.within(LOG);
    for number in segment::numbers(&log)? {
        segment::store_of(&log, number)?.map(&mut vote);
    }
    Ok(votes)
}

/// Makes a manifest of what the other files say, and of `older`, one that once held. All sorted files
/// become one level, with the newest entry of each key.
fn make_manifest(
    root: &Dir,
    older: Option<&Manifest>,
    identity: &Identity,
    mark: Option<Mark>,
    notes: &mut Vec<Note>,
) -> Result<Manifest> {
    let votes = votes(root, mark)?;
    let most = votes.iter().max_by_key(|(_, count)| **count);
    let known = identity.store_id.filter(|known| votes.contains_key(known));
    let most = known.or(most.map(|(store_id, _)| *store_id));
    let store_id = older.map(|older| older.store_id).or(most);
    let Some(store_id) = store_id else {
        return Err(unopened::no_store(root));
    };
    let mark = mark.filter(|mark| mark.store_id == store_id);
    let spill = root.within(SPILL);
    let mut ours = Vec::new();
    let all = gather::numbers(&spill)?;
    for &number in &all {
        match gather::store_of(&spill, number)? {
            Some(found) if found == store_id => ours.push(number),
            None if gather::has_block_of(&spill, store_id, number)? => {
                notes.push(note(
                    StoreFile::Sst,
                    format!("file {number} has a damaged header; its blocks are of this store"),
                ));
                ours.push(number);
            }
            _ => {
                notes.push(note(
                    StoreFile::Sst,
                    format!("file {number} is not used: its header is not that of this store"),
                ));
            }
        }
    }
    let next_file = gather::next_number(&spill)?;
    let next_file = next_file.max(older.map_or(1, |older| older.next_file));
    let log = root.within(LOG);
    let segments = segment::numbers(&log)?;
    let is_ours = |&&number: &_| segment::store_of(&log, number).ok().flatten() == Some(store_id);
    let last = segments.iter().rfind(is_ours).copied();
    let chain = match last {
        Some(last) => inspect::chain(&log, store_id, last)?.map(|chain| (chain, last)),
        None => None,
    };
    // Those that the log does not go on to, or does not come from.
    let is_cut_off = |number: u64| {
        chain
            .as_ref()
            .is_none_or(|(chain, last)| number > *last || number + 1 == chain.segment)
    };
    for number in segments {
        if is_cut_off(number) && segment::has_damaged_header(&log, number)? {
            // With the next opening it would be gone.
            log.entry(segment::name(number)).set_aside()?;
            notes.push(note(
                StoreFile::Log,
                format!("segment {number} is not used: its header is damaged"),
            ));
        }
    }
    let (partitions, partition) = match older.filter(|older| !identity.is_misnumbered(older)) {
        Some(older) => (older.partitions, older.partition),
        None => (identity.partitions(root)?, identity.partition),
    };
    let gathered = gather::gather(&spill, store_id, &ours, next_file)?;
    if !ours.is_empty() {
        notes.push(note(
            StoreFile::Sst,
            format!(
                "{} files were put together: {} entries of {}, the newest of each key, beside {} that \
                 are not whole; keys that were deleted may be among them, if a file no longer counted",
                ours.len(),
                gathered.kept,
                gathered.read,
                gathered.lost
            ),
        ));
    }
    let reached = gathered.sequence.max(mark.map_or(0, |mark| mark.sequence));
    let (first_segment, last_segment, sequence) = match chain {
        Some((chain, last)) => (chain.segment, last, chain.first - 1),
        None => {
            notes.push(note(
                StoreFile::Log,
                "no segment was found: what only the log had is lost".into(),
            ));
            let last = older.map_or(1, |older| older.last_segment);
            (last, last, reached)
        }
    };
    if let Some(mark) = mark
        && mark.sequence < sequence
    {
        notes.push(note(
            StoreFile::Log,
            format!(
                "the requests {} to {sequence} were not found: what they changed is as it was before, or \
                 as a sorted file has it",
                mark.sequence + 1
            ),
        ));
    }
    let generation = mark.map_or(0, |mark| mark.generation);
    let generation = generation.max(older.map_or(0, |older| older.generation)) + 1;
    let manifest = Manifest {
        store_id,
        complete: true,
        marked: mark.is_some(),
        unnamed: older.is_none_or(|older| older.unnamed),
        salvaged: true,
        partitions,
        partition,
        generation,
        next_file: gathered
            .files
            .last()
            .map_or(next_file, |last| last.number + 1),
        first_segment,
        last_segment,
        sequence,
        merge_operator: older
            .map(|older| older.merge_operator.clone())
            .unwrap_or_default(),
        partitioner: older
            .map(|older| older.partitioner.clone())
            .unwrap_or_default(),
        files: gathered.files,
        others: vec![0; manifest::others(partitions, partition)],
    };
    manifest.write(root).inspect_err(|_| {
        // Unless a copy may have the files, the next attempt would make them once more.
        let is_without = match Manifest::find(root) {
            Ok(found) => found.manifest != manifest,
            Err(error) => !error.is_refusal(),
        };
        if is_without {
            gather::remove(&spill, &manifest.files);
        }
    })?;
    Ok(manifest)
}

/// Why the index cannot be used at all, if it cannot.
fn why_not(root: &Dir, progress: &(dyn Fn(Progress) + Sync)) -> Result<Option<String>> {
    if !root.has(INDEX)? {
        return Ok(Some("missing".into()));
    }
    let options = MapOptions {
        faults: root.faults(),
        ignore_lost_journal: true,
        ..MapOptions::default()
    };
    match repair::recover_with(&root.entry(INDEX), Repair::Check, progress, &options) {
        Ok(report) if report.key_size == 0 => Ok(None),
        Ok(_) => Ok(Some("an index of keys and values of fixed size".into())),
        Err(error) if error.is_no_damage() || matches!(error, Error::InUse { .. }) => Err(error),
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// Makes an empty index. The log that is there is replayed from as far back as it goes.
fn make_index(root: &Dir, mut manifest: Manifest, why: &str, notes: &mut Vec<Note>) -> Result<()> {
    let log = root.within(LOG);
    let chain = inspect::chain(&log, manifest.store_id, manifest.first_segment)?;
    let since = match chain {
        Some(chain) => {
            manifest.first_segment = chain.segment;
            manifest.sequence = chain.first - 1;
            chain.first
        }
        None => manifest.sequence + 1,
    };
    manifest.marked = false;
    manifest.salvaged = true;
    manifest.generation += 1;
    manifest.write(root)?;
    for name in [INDEX_JOURNAL, INDEX] {
        if root.has(name)? {
            root.entry(name).set_aside()?;
        }
    }
    let mut options = Options::new();
    if let Some(faults) = root.faults() {
        options = options.faults(faults);
    }
    BytesIndex::open_or_create(&root.entry(INDEX), &options)?
        .0
        .close()?;
    notes.push(note(
        StoreFile::Index,
        format!(
            "{why}; made anew from the sorted files and the log, which has all requests from {since} on: \
             items that were in the index alone are lost, and older values of keys that were changed or \
             deleted there may be back"
        ),
    ));
    Ok(())
}
