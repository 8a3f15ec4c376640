//! What threads have done to each key, and which of it a crash may leave.
//!
//! Durable linearizability, key by key (Izraelevitz, Mendes and Scott, *Linearizability of
//! persistent memory objects*, DISC 2016). What a crash leaves must be the end of some order of
//! operations: all that were answered, and any of those under way. Each stands between its
//! invocation and its answer. An operation that changed nothing only saw something, and what it saw
//! of others need not have been durable (`docs/design.md`, Visible before durable); so it is left
//! out.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::Write;

/// The version of every key that is there.
pub(super) type Model = BTreeMap<u64, u64>;

/// What a key may be after a crash: a version of it, or absent.
pub(super) type Allowed = BTreeMap<u64, BTreeSet<Option<u64>>>;

/// One operation on one key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) key: u64,
    pub(super) verb: Write,
    pub(super) version: u64,
    pub(super) answer: bool,
    /// Steps of the medium before it began.
    pub(super) invoked: u64,
    /// Steps of the medium when its batch was answered.
    pub(super) answered: u64,
}

impl Event {
    fn is_change(&self) -> bool {
        self.answer || matches!(self.verb, Write::Upsert)
    }

    /// What the operation makes of a key, if it is one that it changes.
    fn change(&self, held: Option<u64>) -> Option<Option<u64>> {
        match (self.verb, held) {
            (Write::Insert, None) | (Write::Upsert, _) | (Write::Update, Some(_)) => {
                Some(Some(self.version))
            }
            (Write::Remove, Some(_)) => Some(None),
            _ => None,
        }
    }

    /// Whether the answer is that of a key that is `held` so.
    pub(super) fn fits(&self, held: Option<u64>) -> bool {
        let expected = match self.verb {
            Write::Insert | Write::Upsert => held.is_none(),
            Write::Update | Write::Remove => held.is_some(),
        };
        self.answer == expected
    }

    /// Does the operation to a model, whose answer must be the same.
    pub(super) fn apply(&self, model: &mut Model) {
        let held = model.get(&self.key).copied();
        assert!(self.fits(held), "{self:?} of a key that is {held:?}");
        match self.change(held) {
            Some(Some(version)) => model.insert(self.key, version),
            Some(None) => model.remove(&self.key),
            None => None,
        };
    }
}

/// All that was done since a table held `start`.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) start: Model,
    /// Of each thread, in its order.
    pub(super) threads: Vec<Vec<Event>>,
}

impl History {
    /// What each of `keys` may be after a crash once `step` steps were done.
    pub(super) fn allowed(&self, step: u64, keys: impl Iterator<Item = u64>) -> Allowed {
        keys.map(|key| (key, self.allowed_of(step, key))).collect()
    }

    fn allowed_of(&self, step: u64, key: u64) -> BTreeSet<Option<u64>> {
        let of_key = |event: &&Event| {
            let is_answered = event.answered <= step;
            event.key == key && event.invoked < step && (event.is_change() || !is_answered)
        };
        let threads: Vec<Vec<&Event>> = self
            .threads
            .iter()
            .map(|events| events.iter().filter(of_key).collect())
            .collect();
        let mut ends = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut reached = vec![(vec![0; threads.len()], self.start.get(&key).copied())];
        while let Some((done, held)) = reached.pop() {
            if !seen.insert((done.clone(), held)) {
                continue;
            }
            let heads = || threads.iter().zip(&done).map(|(events, &n)| events.get(n));
            if heads().all(|head| head.is_none()) {
                ends.insert(held);
            }
            for (thread, event) in heads().enumerate() {
                let Some(event) = event else { continue };
                let mut after = done.clone();
                after[thread] += 1;
                let is_answered = event.answered <= step;
                if !is_answered {
                    reached.push((after.clone(), held));
                }
                let is_next = heads()
                    .flatten()
                    .all(|other| other.answered > step || other.answered >= event.invoked);
                if is_next
                    && (!is_answered || event.fits(held))
                    && let Some(held) = event.change(held)
                {
                    reached.push((after, held));
                }
            }
        }
        assert!(
            !ends.is_empty(),
            "no order explains the answers of key {key}: {threads:?}"
        );
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(verb: Write, version: u64, answer: bool, invoked: u64, answered: u64) -> Event {
        let key = 7;
        Event {
            key,
            verb,
            version,
            answer,
            invoked,
            answered,
        }
    }

    fn allowed(threads: &[&[Event]], step: u64) -> Vec<Option<u64>> {
        let history = History {
            start: Model::new(),
            threads: threads.iter().map(|events| events.to_vec()).collect(),
        };
        history.allowed_of(step, 7).into_iter().collect()
    }

    #[test]
    fn history_keeps_acknowledged_and_may_keep_pending_operations() {
        let events = [
            event(Write::Insert, 1, true, 0, 4),
            event(Write::Update, 2, true, 4, 8),
        ];
        assert_eq!(allowed(&[&events], 0), [None]);
        assert_eq!(allowed(&[&events], 3), [None, Some(1)]);
        assert_eq!(allowed(&[&events], 4), [Some(1)]);
        assert_eq!(allowed(&[&events], 7), [Some(1), Some(2)]);
        assert_eq!(allowed(&[&events], 8), [Some(2)]);
    }

    #[test]
    fn history_allows_any_order_that_the_results_allow() {
        let first = [event(Write::Upsert, 1, true, 0, 9)];
        let second = [event(Write::Upsert, 2, false, 0, 9)];
        assert_eq!(allowed(&[&first, &second], 9), [Some(2)]);
        let third = [event(Write::Upsert, 3, false, 0, 9)];
        assert_eq!(allowed(&[&first, &second, &third], 9), [Some(2), Some(3)]);
        let late = [event(Write::Upsert, 3, false, 10, 12)];
        assert_eq!(allowed(&[&first, &second, &late], 12), [Some(3)]);
        // The insertion can only have come after the removal, which is not answered.
        let start = [event(Write::Insert, 1, true, 0, 2)];
        let removal = [event(Write::Remove, 0, true, 3, 20)];
        let insertion = [event(Write::Insert, 4, true, 4, 9)];
        assert_eq!(allowed(&[&start, &removal, &insertion], 10), [Some(4)]);
    }

    #[test]
    #[should_panic(expected = "no order explains")]
    fn history_refuses_two_insertions_of_one_key() {
        let first = [event(Write::Insert, 1, true, 0, 9)];
        let second = [event(Write::Insert, 2, true, 0, 9)];
        allowed(&[&first, &second], 9);
    }
}
