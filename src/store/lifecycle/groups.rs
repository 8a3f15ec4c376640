//! Which groups that change several partitions count after a crash.
//!
//! A group has a prepare record in the log of each partition that it changes, and a commit record in the log of the
//! first partition, which names all of them. It counts if all of these records are there. So a crash takes it back
//! as a whole, also one that leaves the logs at different moments. What came after a group in a log may rest on it,
//! and goes with it. Nothing of that was promised: who promises that a log is durable has made the others so before
//! (p²KVS §4.5).

#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::HashMap;

use crate::Result;
use crate::store::files::manifest::Manifest;
use crate::store::options::StoreOptions;
use crate::store::wal::replay::{Part, Replay};
use crate::width::to_usize;

/// Ends logs before the first group in each that does not count. The logs and manifests are those of all partitions
/// of a store, in order.
///
/// # Errors
/// [`Error::DamagedLog`](crate::Error::DamagedLog) for a part of a group that nobody has written.
pub fn decide(logs: &mut [Replay], manifests: &[Manifest], options: &StoreOptions) -> Result<()> {
    let takes_older = takes_older(manifests, options);
    for number in 0..logs.len() {
        let partitions = logs.len() as u64;
        let log = &mut logs[number];
        let is_possible = |part: &Part| part.of.is_possible(number as u64, partitions);
        let impossible = log.parts.iter().position(|part| !is_possible(part));
        let Some(nth) = impossible.filter(|_| !takes_older) else {
            continue;
        };
        if !options.salvage {
            return Err(log.damaged_part(nth));
        }
        log.end_before(nth);
        log.is_cut = true;
    }
    if !(takes_older || logs.iter().any(|log| log.is_cut)) {
        drop_undecided(logs, manifests);
    } else {
        // A salvage keeps what it can: records that decide may be among those that it gives up. The next opening may
        // not be asked what counts.
        logs[0].has_tail = true;
        // Nor may an opening that comes after this one was cut short miss prepare records that are given up.
        let partitions = logs.len() as u64;
        let (first, others) = logs.split_at_mut(1);
        let parts = first[0].parts.iter().map(|part| &part.of);
        let possible = parts.filter(|part| part.is_possible(0, partitions));
        for (number, sequence) in possible.flat_map(|part| &part.participants) {
            let other = &mut others[to_usize(*number) - 1];
            other.next = other.next.max(sequence + 1);
        }
    }
    // What stands behind the end of a log is in nobody's way once a checkpoint has taken the place of all of them.
    if logs.iter().any(|log| log.has_tail) {
        logs.iter_mut().for_each(|log| log.has_tail = true);
    }
    Ok(())
}

/// Whether parts of a store may be older than others: a salvage of what is damaged is under way, or was cut short.
pub fn takes_older(manifests: &[Manifest], options: &StoreOptions) -> bool {
    options.takes_older || manifests.iter().any(|manifest| manifest.salvaged)
}

fn drop_undecided(logs: &mut [Replay], manifests: &[Manifest]) {
    while let Some((partition, nth)) = first_undecided(logs, manifests) {
        tracing::info!(partition, "a change that a crash has cut short is left out");
        logs[partition].end_before(nth);
    }
}

/// The first part in some log whose group does not count.
fn first_undecided(logs: &[Replay], manifests: &[Manifest]) -> Option<(usize, usize)> {
    // The prepare records of each group: partition and sequence number.
    let mut prepared: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
    for (number, log) in logs.iter().enumerate().skip(1) {
        for part in &log.parts {
            let of_group = prepared.entry(part.of.group).or_default();
            of_group.push((number as u64, part.first));
        }
    }
    // They are in their logs, or a checkpoint has replaced these.
    let is_whole = |group: u64, participants: &[(u64, u64)]| {
        let there = prepared.get(&group);
        participants.iter().all(|record| {
            let manifest = usize::try_from(record.0)
                .ok()
                .and_then(|number| manifests.get(number));
            there.is_some_and(|there| there.contains(record))
                || manifest.is_some_and(|manifest| record.1 <= manifest.sequence)
        })
    };
    let decided: HashMap<u64, bool> = logs[0]
        .parts
        .iter()
        .map(|part| {
            (
                part.of.group,
                is_whole(part.of.group, &part.of.participants),
            )
        })
        .collect();
    logs.iter().enumerate().find_map(|(number, log)| {
        let is_undecided = |group: &u64| decided.get(group) != Some(&true);
        let nth = log
            .parts
            .iter()
            .position(|part| is_undecided(&part.of.group))?;
        Some((number, nth))
    })
}
