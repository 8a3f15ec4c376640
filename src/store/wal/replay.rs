//! Reading the log after a crash.

use rayon::prelude::*;

use super::record::{self, Entry, RECORD_HEADER, RecordHeader, seed};
use super::segment::{SEGMENT_HEADER, Segment};
use crate::store::directory::Directory;
use crate::store::manifest::MOST;
use crate::{Error, Result};

/// What a replay has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// The sequence number after the last one.
    pub next: u64,
    /// Records that were carried out.
    pub records: u64,
}

/// An entry with its sequence number.
pub type Numbered<'a> = (Entry<'a>, u64);

/// Carries out all records of the segments that count, in order: `apply` gets the entries of one
/// segment after the other. `progress` gets the bytes read, and all bytes.
///
/// The end of the log may be torn. With `salvage`, so may any place of it: then the log ends there.
///
/// # Errors
/// [`Error::DamagedLog`], those of [`Segment::open`], and what `apply` answers.
pub fn replay(
    directory: &Directory,
    salvage: bool,
    progress: &(dyn Fn(u64, u64) + Sync),
    mut apply: impl FnMut(&[Numbered]) -> Result<()> + Send,
) -> Result<Replayed> {
    let manifest = directory.manifest();
    let mut reached = Replayed {
        next: manifest.sequence + 1,
        records: 0,
    };
    let numbers = manifest.first_segment..=manifest.last_segment;
    let open = |number| Segment::open(directory.log(), manifest.store_id, number);
    let mut segments = Vec::new();
    let mut broken = None;
    for number in numbers {
        match open(number) {
            Ok(segment) => segments.push(segment),
            Err(error) => {
                broken = Some(error);
                break;
            }
        }
    }
    if let Some(error) = &broken {
        forgive(error, salvage)?;
    }
    let all = segments
        .iter()
        .map(|segment| segment.len())
        .sum::<Result<u64>>()?;
    let mut done = 0;
    let mut loaded = segments.first().map(Loaded::read).transpose()?;
    for (nth, segment) in segments.iter().enumerate() {
        let Some(this) = loaded.take() else { break };
        let next = segments.get(nth + 1);
        let end = match next {
            Some(next) => End::Next(next.first),
            None if broken.is_none() => End::Torn,
            None => End::Unknown,
        };
        let checked = this.check(segment, &mut reached, end);
        let count = match &checked {
            Ok(count) => *count,
            Err((count, error)) => {
                forgive(error, salvage)?;
                *count
            }
        };
        let entries = this.entries(segment, count)?;
        // Nothing may become durable in the index before it is in the log.
        segment.sync()?;
        let (applied, read) = rayon::join(
            || apply(&entries),
            || match (&checked, next) {
                (Ok(_), Some(next)) => Loaded::read(next).map(Some),
                _ => Ok(None),
            },
        );
        applied?;
        loaded = read?;
        done += this.bytes.len() as u64;
        progress(done, all);
    }
    Ok(reached)
}

/// Lets damage pass if the caller wants what lies before it.
fn forgive(error: &Error, salvage: bool) -> Result<()> {
    if !salvage {
        return Err(error.clone());
    }
    tracing::warn!(%error, "the log is used up to here");
    Ok(())
}

/// What must be behind the records of a segment.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// The end of the log, which may be torn.
    Torn,
    /// A segment that begins with this sequence number.
    Next(u64),
    /// Nobody knows.
    Unknown,
}

/// A segment in memory, and the records in it whose checksums match.
pub(super) struct Loaded {
    pub(super) bytes: Vec<u8>,
    records: Vec<(usize, RecordHeader)>,
    /// Where the first place is that holds no valid record.
    end: usize,
}

impl Loaded {
    pub(super) fn read(segment: &Segment) -> Result<Self> {
        let bytes = segment.contents()?;
        let mut records = Vec::new();
        let mut end = SEGMENT_HEADER as usize;
        while let Some((header, next)) = record_at(&bytes, segment.salt, end) {
            records.push((end, header));
            end = next;
        }
        let holds =
            |&(at, ref header): &(usize, RecordHeader)| holds(&bytes, segment.salt, at, header);
        if let Some(nth) = records.par_iter().position_first(|record| !holds(record)) {
            end = records[nth].0;
            records.truncate(nth);
        }
        Ok(Self {
            bytes,
            records,
            end,
        })
    }

    /// How many records count, if they are those from `reached` on up to the end; else with what is
    /// wrong behind them.
    pub(super) fn check(
        &self,
        segment: &Segment,
        reached: &mut Replayed,
        end: End,
    ) -> Result<usize, (usize, Error)> {
        let damaged = |at: usize, found: String| Error::DamagedLog {
            path: segment.path().to_path_buf(),
            at: at as u64,
            found,
        };
        if segment.first > reached.next {
            let found = format!(
                "the segment begins with sequence number {}; expected {}",
                segment.first, reached.next
            );
            return Err((0, damaged(40, found)));
        }
        let until = match end {
            End::Next(until) => until,
            End::Torn | End::Unknown => u64::MAX,
        };
        let mut count = 0;
        for (at, header) in &self.records {
            if header.first >= until {
                break;
            }
            let next = header.first.checked_add(header.span);
            let Some(next) = next
                .filter(|&next| header.first == reached.next && header.span != 0 && next <= MOST)
            else {
                let found = format!(
                    "a record of {} sequence numbers from {} on; expected {}",
                    header.span, header.first, reached.next
                );
                return Err((count, damaged(*at, found)));
            };
            reached.next = next;
            reached.records += 1;
            count += 1;
        }
        let found = match end {
            End::Torn => self.witness(segment.salt).map(|witness| {
                format!(
                    "no valid record, but the one at byte {witness} was written after this place \
                     was durable"
                )
            }),
            End::Next(_) if until != reached.next => Some(format!(
                "no valid record of sequence number {}; the next segment begins with {until}",
                reached.next
            )),
            End::Next(_) | End::Unknown => None,
        };
        match found {
            Some(found) => Err((count, damaged(self.end, found))),
            None => Ok(count),
        }
    }

    /// A valid record behind the end of the records that says that the place there was durable.
    fn witness(&self, salt: u64) -> Option<usize> {
        (self.end + 8..self.bytes.len()).step_by(8).find(|&at| {
            match record_at(&self.bytes, salt, at) {
                Some((header, _)) => {
                    header.durable > self.end as u64 && holds(&self.bytes, salt, at, &header)
                }
                None => false,
            }
        })
    }

    pub(super) fn entries(&self, segment: &Segment, count: usize) -> Result<Vec<Numbered<'_>>> {
        let mut numbered = Vec::new();
        for (at, header) in &self.records[..count] {
            let start = at + RECORD_HEADER;
            let entries = record::entries(&self.bytes[start..start + header.len as usize]);
            for entry in entries {
                let possible = |entry: &Entry| u64::from(entry.position) < header.span;
                let entry = entry.filter(possible).ok_or_else(|| Error::DamagedLog {
                    path: segment.path().to_path_buf(),
                    at: *at as u64,
                    found: "a record with a valid checksum and an entry that cannot be".into(),
                })?;
                let sequence = header.first + u64::from(entry.position);
                numbered.push((entry, sequence));
            }
        }
        Ok(numbered)
    }
}

/// The header at `at`, if it is one, and where the next record would be.
fn record_at(bytes: &[u8], salt: u64, at: usize) -> Option<(RecordHeader, usize)> {
    let place = bytes.get(at..)?;
    if place.get(..8)? == [0; 8] {
        return None;
    }
    let header = RecordHeader::read(place, seed(salt, at as u64))?;
    let stride = usize::try_from(header.stride()?).ok()?;
    let end = at
        .checked_add(RECORD_HEADER)?
        .checked_add(usize::try_from(header.len).ok()?)?;
    (end <= bytes.len()).then_some((header, at.checked_add(stride)?))
}

fn holds(bytes: &[u8], salt: u64, at: usize, header: &RecordHeader) -> bool {
    let start = at + RECORD_HEADER;
    let entries = &bytes[start..start + header.len as usize];
    header.holds(entries, seed(salt, at as u64))
}
