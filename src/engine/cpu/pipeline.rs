//! Operations on their way through memory, so that its latency is paid by many at a time.
//!
//! An operation reads its home bucket, perhaps its other candidate buckets, then the record:
//! misses that depend on each other. While one operation is at its last step, those behind it in
//! the batch are at earlier ones, and each step asks for what the next will read. Steps of
//! different operations alternate, so that a core has a few misses under way all the time: bursts
//! of them wait for each other (measured in `docs/performance.md`).

use std::ops::ControlFlow;

use crate::Result;
use crate::index::lookup::Member;
use crate::index::table::{Session, Table};
use crate::index::target::Target;
use crate::pm::Medium;

/// How many operations lie between one step of a look-up and the next.
const DISTANCE: usize = 8;

/// Steps of a look-up: home bucket, other buckets, record, value.
const STEPS: usize = 4;

/// Look-ups under way.
const UNDER_WAY: usize = DISTANCE * STEPS;

/// Changes that are hashed, and whose buckets are asked for, ahead of their execution.
const AHEAD: usize = 16;

/// Bytes of a line of the CPU's cache.
const LINE: u64 = 64;

/// Most lines of a record that are asked for; the processor sees the pattern of longer ones.
const RECORD_LINES: u64 = 8;

#[derive(Clone, Copy)]
struct LookUp<'k> {
    target: Target<'k>,
    member: Option<Member>,
}

/// Looks up `len` keys in order, and calls `found` with the position of each that is there.
#[inline]
pub fn look_up<'k, M: Medium>(
    session: &mut Session<M>,
    len: usize,
    key: impl Fn(usize) -> &'k [u8],
    mut found: impl FnMut(&mut Session<M>, Member, usize) -> Result<()>,
) -> Result<()> {
    let table = session.table;
    let mut under_way: [Option<LookUp>; UNDER_WAY] = [None; UNDER_WAY];
    for step in 0..len + UNDER_WAY - DISTANCE {
        // From the last step to the first: the place of a look-up that ends is taken by the next.
        if let Some(position) = step.checked_sub(3 * DISTANCE)
            && let Some(LookUp {
                member: Some(member),
                ..
            }) = under_way[position % UNDER_WAY].take()
        {
            found(session, member, position)?;
        }
        if let Some(position) = step.checked_sub(2 * DISTANCE)
            && let Some(look_up) = &mut under_way[position % UNDER_WAY]
            && look_up.member.is_none()
        {
            look_up.member = table.find(&look_up.target, &mut session.touches);
            prefetch_record(table, look_up.member);
        }
        if let Some(position) = step.checked_sub(DISTANCE)
            && let Some(look_up) = &mut under_way[position % UNDER_WAY]
        {
            look_up.member = table.find_at_home(&look_up.target);
            match look_up.member {
                Some(_) => {
                    session.touches += 1;
                    prefetch_record(table, look_up.member);
                }
                None => prefetch_candidates(table, &look_up.target),
            }
        }
        if step < len {
            let target = table.target(key(step));
            let home = table.home(&target, table.directory.levels().top);
            prefetch_bucket(table, home.at);
            under_way[step % UNDER_WAY] = Some(LookUp {
                target,
                member: None,
            });
        }
    }
    Ok(())
}

/// Executes the operations at `positions` in order, asking for their buckets ahead.
#[inline]
pub fn change<'k, M: Medium>(
    session: &mut Session<M>,
    positions: impl Iterator<Item = usize>,
    key: impl Fn(usize) -> &'k [u8],
    mut execute: impl FnMut(&mut Session<M>, &Target, usize) -> Result<()>,
) -> Result<()> {
    let table = session.table;
    let mut ahead: [Option<(Target, usize)>; AHEAD] = [None; AHEAD];
    let mut slots = (0..AHEAD).cycle();
    // The places of those ahead are gone through once more at the end, to empty them.
    let coming = positions.map(Some).chain(std::iter::repeat_n(None, AHEAD));
    for (position, slot) in coming.zip(&mut slots) {
        if let Some((target, position)) = ahead[slot].take() {
            execute(session, &target, position)?;
        }
        ahead[slot] = position.map(|position| {
            let target = table.target(key(position));
            prefetch_candidates(table, &target);
            (target, position)
        });
    }
    Ok(())
}

/// Asks for the state and record words of the bucket at `at`.
#[inline]
fn prefetch_bucket<M: Medium>(table: &Table<M>, at: u64) {
    table.medium.prefetch(at);
    let records = u64::from(table.shape.slots) * 8;
    table.medium.prefetch(at + records);
}

/// Asks for the candidate buckets of the first round.
#[inline]
fn prefetch_candidates<M: Medium>(table: &Table<M>, target: &Target) {
    let levels = table.directory.levels();
    let _ = table.candidates::<()>(target, 0, levels.top, levels.bottom, |bucket| {
        prefetch_bucket(table, bucket.at);
        ControlFlow::Continue(())
    });
}

/// Asks for the record of a member.
#[inline]
fn prefetch_record<M: Medium>(table: &Table<M>, member: Option<Member>) {
    if let Some(member) = member {
        let lines = table.shape.value_size.div_ceil(LINE).min(RECORD_LINES);
        for line in 0..lines {
            table.medium.prefetch(member.record.offset() + line * LINE);
        }
    }
}
