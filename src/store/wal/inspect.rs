//! Inspecting the log: every checksum of every segment, without replaying it.

use std::path::PathBuf;

use super::replay::{Loaded, Replay, Until};
use crate::pm::Dir;
use crate::store::files::manifest::Manifest;
use crate::store::files::segment;
use crate::store::files::segment::Segment;
use crate::{Error, Result};

/// What was found in a segment.
#[derive(Debug)]
pub struct InspectedSegment {
    /// Where it is, or should be.
    pub path: PathBuf,
    /// Bytes of the file; 0 if it cannot be read.
    pub bytes: u64,
    /// Records that a replay would apply.
    pub records: u64,
    /// What is wrong with it.
    pub error: Option<Error>,
}

/// Where a log that is inspected must end.
#[derive(Debug, Clone, Copy)]
pub enum Extent {
    /// Nobody writes it; a crash may have torn its end.
    Torn,
    /// It is in use, and has all records up to this sequence number, which is not in it.
    Upto(u64),
}

/// Inspects the segments that the manifest counts, and gives what is in each, and the first sequence number
/// that is in none of them, if they are whole. `still_counts` is asked
/// about one that is not there; `progress` gets the bytes read, and all bytes.
///
/// # Errors
/// What the operating system answers when asked for the segments.
pub fn inspect(
    dir: &Dir,
    manifest: &Manifest,
    extent: Extent,
    still_counts: &dyn Fn(u64) -> bool,
    progress: &dyn Fn(u64, u64),
) -> Result<(Vec<InspectedSegment>, Option<u64>)> {
    let last = match extent {
        Extent::Torn => segment::last(dir, manifest)?,
        Extent::Upto(_) => manifest.last_segment,
    };
    let counts = manifest.first_segment..=last;
    let names = dir.names()?;
    let numbers = names.iter().filter_map(|name| segment::number(name));
    let mut numbers: Vec<u64> = numbers.filter(|number| counts.contains(number)).collect();
    numbers.sort_unstable();
    // One that is missing is named once, however many there are behind it.
    let gap = (manifest.first_segment..)
        .zip(numbers.iter().map(Some).chain([None]))
        .find(|&(expected, found)| found != Some(&expected))
        .map(|(expected, _)| expected)
        .filter(|expected| counts.contains(expected) && still_counts(*expected));
    if let Some(missing) = gap {
        let position = numbers.partition_point(|number| *number < missing);
        numbers.insert(position, missing);
    }
    let open = |number| Segment::open(dir, manifest.store_id, number);
    let len = |number: &u64| dir.len_of(&segment::name(*number));
    let all = numbers.iter().flat_map(len).sum();
    let mut done = 0;
    let is_first = numbers.first() == Some(&manifest.first_segment);
    let mut reached = is_first.then_some(manifest.sequence + 1);
    let mut inspected = Vec::with_capacity(numbers.len());
    let mut opened = numbers.first().map(|&number| open(number));
    for (nth, &number) in numbers.iter().enumerate() {
        let next = numbers.get(nth + 1).map(|&next| open(next));
        let this = opened.take().expect("opened as the next one");
        let until = match (&next, extent) {
            (Some(Ok(next)), _) => Until::Sequence(next.first),
            (None, Extent::Torn) => Until::TheEnd,
            _ => Until::Anywhere,
        };
        opened = next;
        let mut found = InspectedSegment {
            path: dir.join(segment::name(number)),
            bytes: 0,
            records: 0,
            error: None,
        };
        let outcome = this.and_then(|segment| {
            inspect_segment((&segment, manifest), until, &mut reached, &mut found)
        });
        done += found.bytes;
        progress(done, all);
        if let Err(error) = outcome {
            if !still_counts(number) {
                // A checkpoint has taken its place since, and another segment may have its file.
                reached = None;
                continue;
            }
            // What stands behind is inspected for its own sake.
            reached = None;
            found.error = Some(error);
        }
        inspected.push(found);
    }
    if let (Extent::Upto(wanted), Some(reached), Some(last)) =
        (extent, reached, inspected.last_mut())
        && reached < wanted
        && last.error.is_none()
    {
        last.error = Some(Error::DamagedLog {
            path: last.path.clone(),
            at: last.bytes,
            found: format!(
                "no valid record of sequence number {reached}; all before {wanted} were written"
            ),
        });
    }
    Ok((inspected, reached))
}

/// Where a log begins.
#[derive(Debug, Clone, Copy)]
pub struct Chain {
    /// Number of its first segment.
    pub segment: u64,
    /// Its first sequence number.
    pub first: u64,
}

/// How far back the log goes that ends with segment `last`, or `None` if that is not there. Segments that no
/// longer count are part of it, as long as each goes on where the one before ends.
///
/// # Errors
/// What the operating system answers.
pub fn chain(dir: &Dir, store_id: [u64; 2], last: u64) -> Result<Option<Chain>> {
    let open = |number| match Segment::open(dir, store_id, number) {
        Err(error) if error.is_no_damage() => Err(error),
        opened => Ok(opened.ok()),
    };
    let Some(mut begins) = open(last)? else {
        return Ok(None);
    };
    while begins.number > 1
        && let Some(before) = open(begins.number - 1)?
    {
        let loaded = Loaded::read(&before, Vec::new())?;
        let mut replay = Replay::empty();
        replay.next = before.first;
        let checked = loaded.check(&before, &mut replay, Until::Sequence(begins.first));
        if checked.error.is_some() {
            break;
        }
        begins = before;
    }
    Ok(Some(Chain {
        segment: begins.number,
        first: begins.first,
    }))
}

fn inspect_segment(
    (segment, manifest): (&Segment, &Manifest),
    until: Until,
    reached: &mut Option<u64>,
    found: &mut InspectedSegment,
) -> Result<()> {
    let loaded = Loaded::read(segment, Vec::new())?;
    found.bytes = loaded.bytes.len() as u64;
    let mut replay = Replay::empty();
    replay.next = reached.unwrap_or(segment.first);
    let checked = loaded.check(segment, &mut replay, until);
    *reached = Some(replay.next);
    found.records = checked.count as u64;
    loaded.entries(segment.path(), 0..checked.count, |_, _| None::<()>)?;
    let (number, partitions) = (manifest.partition.into(), manifest.partitions.into());
    let mut parts = replay.parts.iter();
    let impossible = parts.find(|part| !part.of.is_possible(number, partitions));
    let impossible = impossible.map(|part| part.damage(segment.path()));
    impossible.or(checked.error).map_or(Ok(()), Err)
}
