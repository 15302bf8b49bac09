//! What the service knows, over several locks: the tables of prefixes, and the groups.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, RwLock};

use pathcast_analysis::clusters::Prefix;
use pathcast_decide::group::{Members, StoredGroup, StoredPrefix};
use pathcast_decide::table::Total;
use pathcast_decide::{
    Asked, Client, Entry, Groups, Kind, Networks, Outcome, PathState, Sample, Table, Waiting,
};

/// Parts of the prefixes. A part is locked while it is stored, so it is small.
pub const PARTS: usize = 512;
/// Most groups.
const GROUPS: NonZeroUsize = NonZeroUsize::new(16_384).unwrap();

/// A part, and the last batch of samples that it has taken.
#[derive(Debug)]
pub struct Part {
    /// Its prefixes.
    pub table: Table,
    /// Number of the batch.
    pub batch: u64,
}

/// All that is known.
#[derive(Debug)]
pub struct Knowledge {
    parts: Vec<Mutex<Part>>,
    groups: RwLock<(Groups, u64)>,
    networks: Networks,
    window_s: f64,
}

/// The part of a prefix.
pub fn part_of(prefix: Prefix) -> usize {
    // Fibonacci hashing over all bits
    let bits = prefix.bits();
    #[allow(clippy::cast_possible_truncation)] // folded
    let folded = (bits as u64) ^ ((bits >> 64) as u64);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % PARTS
}

impl Knowledge {
    /// Nothing yet; at most about `prefixes`.
    pub fn new(prefixes: usize, window_s: f64, networks: Networks) -> Self {
        // prefixes are not spread evenly over the parts: three standard deviations more
        let most = prefixes.div_ceil(PARTS);
        let more = 3 * most.isqrt();
        let most = NonZeroUsize::new(most + more).unwrap_or(NonZeroUsize::MIN);
        let part = || {
            let table = Table::new(most, window_s);
            Mutex::new(Part { table, batch: 0 })
        };
        Self {
            parts: (0..PARTS).map(|_| part()).collect(),
            groups: RwLock::new((Groups::new(GROUPS, window_s), 0)),
            networks,
            window_s,
        }
    }

    /// A part.
    pub fn part(&self, number: usize) -> MutexGuard<'_, Part> {
        // a panic under the lock leaves at most one sample half taken
        self.parts[number]
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The table of networks and regions.
    pub fn networks(&self) -> &Networks {
        &self.networks
    }

    /// Takes a batch of samples. Batches come in the order of their numbers, one after the other; parts that already have
    /// the batch skip it.
    pub fn update(
        &self,
        batch: u64,
        samples: &[Sample],
        mut scored: impl FnMut(&Sample, &Outcome),
    ) {
        let mut by_part: Vec<(u16, u32)> = (0..)
            .zip(samples)
            .map(|(number, sample)| {
                #[allow(clippy::cast_possible_truncation)] // below PARTS
                let part = part_of(sample.client.prefix) as u16;
                (part, number)
            })
            .collect();
        by_part.sort_unstable();
        let mut shared: Vec<u32> = Vec::new();
        for of_part in by_part.chunk_by(|a, b| a.0 == b.0) {
            let mut part = self.part(of_part[0].0.into());
            if part.batch >= batch {
                continue;
            }
            part.batch = batch;
            for &(_, number) in of_part {
                let sample = &samples[number as usize];
                if part.table.update(sample, |outcome| scored(sample, outcome)) {
                    shared.push(number);
                }
            }
        }
        if shared.is_empty() {
            return;
        }
        let mut groups = self
            .groups
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if groups.1 < batch {
            groups.1 = batch;
            for number in shared {
                let sample = &samples[number as usize];
                let place = self.networks.place(sample.client.prefix);
                groups.0.update(sample, place);
            }
        }
    }

    /// What is known of a client's path; a group's for what its own prefix lacks. None if nothing is known.
    pub fn path(&self, client: Client, asked: &Asked, needs_rate: bool) -> Option<PathState> {
        let own = {
            let part = self.part(part_of(client.prefix));
            let entry = part.table.get(client.prefix);
            entry.and_then(|entry| PathState::own(entry, asked))
        };
        let answers = |state: &PathState| state.answers(needs_rate);
        if let Some(own) = own.filter(|own| answers(own) && own.rtt_s.is_some()) {
            return Some(own);
        }
        let groups = self
            .groups
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let place = self.networks.place(client.prefix);
        let from_s = asked.now_s - self.window_s;
        let closest = |needs_rate: bool| {
            let is_enough = |members: &Members| members.answers(from_s, needs_rate).then_some(());
            let (group, members, ()) = groups.0.closest(client.prefix, place, is_enough)?;
            Some(PathState::of_group(group, members, asked))
        };
        match own {
            Some(mut own) if answers(&own) => {
                if let Some(group) = closest(false) {
                    own.fill(&group);
                }
                Some(own)
            }
            own => {
                let mut group = closest(needs_rate)?;
                if let Some(own) = own {
                    // its own round-trip time and losses are better than the group's
                    let rates = (group.rates_bps, group.rate, group.basis);
                    let mut mixed = own;
                    mixed.fill(&group);
                    (mixed.rates_bps, mixed.rate, mixed.basis) = rates;
                    group = mixed;
                }
                Some(group)
            }
        }
    }

    /// What `find` finds in the entry of a prefix.
    pub fn entry<T>(&self, prefix: Prefix, find: impl FnOnce(&Entry) -> T) -> Option<T> {
        self.part(part_of(prefix)).table.get(prefix).map(find)
    }

    /// Notes a decision; whether it will be scored.
    pub fn wait(&self, prefix: Prefix, decision: Waiting, now_s: f64) -> bool {
        let mut part = self.part(part_of(prefix));
        part.table.wait(prefix, decision, now_s)
    }

    /// Takes what happened after a decision.
    pub fn outcome(&self, prefix: Prefix, id: u64, truth: f64) -> Option<Outcome> {
        self.part(part_of(prefix)).table.outcome(prefix, id, truth)
    }

    /// Prefixes, evicted prefixes, and outcomes by kind.
    pub fn totals(&self) -> (usize, u64, [Total; Kind::ALL.len()]) {
        let (mut prefixes, mut evicted) = (0, 0);
        let mut totals = [Total::default(); Kind::ALL.len()];
        for number in 0..PARTS {
            let part = self.part(number);
            prefixes += part.table.len();
            evicted += part.table.evicted;
            for (sum, of_part) in totals.iter_mut().zip(&part.table.totals) {
                sum.count += of_part.count;
                sum.held += of_part.held;
                sum.error += of_part.error;
            }
        }
        (prefixes, evicted, totals)
    }

    /// The stored form of a part: the last batch that it has, and its prefixes.
    pub fn store_part(&self, number: usize, write: impl FnOnce(u64, &Table)) {
        let part = self.part(number);
        write(part.batch, &part.table);
    }

    /// Puts back a part.
    pub fn restore_part(&self, number: usize, batch: u64, entries: Vec<(StoredPrefix, Entry)>) {
        let mut part = self.part(number);
        part.batch = batch;
        for (prefix, entry) in entries {
            part.table.restore(prefix, entry);
        }
    }

    /// The groups, and the last batch that they have.
    pub fn store_groups(&self) -> (u64, Vec<StoredGroup>) {
        let groups = self
            .groups
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        (groups.1, groups.0.stored())
    }

    /// Puts back the groups.
    pub fn restore_groups(&self, batch: u64, stored: Vec<StoredGroup>) {
        let mut groups = self
            .groups
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        groups.1 = batch;
        groups.0.restore(stored);
    }

    /// The highest batch that anything has.
    pub fn last_batch(&self) -> u64 {
        let parts = (0..PARTS).map(|number| self.part(number).batch).max();
        parts.unwrap_or(0).max(self.store_groups().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_are_in_different_parts() {
        let parts: std::collections::BTreeSet<usize> = (0..=255_u8)
            .flat_map(|a| (0..8).map(move |b| format!("10.{b}.{a}.1")))
            .map(|client| part_of(Client::parse(&client).unwrap().prefix))
            .collect();
        assert!(parts.len() > PARTS / 2, "{}", parts.len());
    }
}
