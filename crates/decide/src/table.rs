//! Client prefixes in bounded memory: the one without samples for longest makes room for a new one.

use std::num::NonZeroUsize;

use lru::LruCache;
use pathcast_analysis::clusters::Prefix;

use crate::entry::Entry;
use crate::group::{StoredPrefix, prefix_of};
use crate::sample::Sample;
use crate::score::{Kind, Outcome, WAITING, Waiting};

/// Prefixes without samples whose decisions wait.
const COLD: NonZeroUsize = NonZeroUsize::new(128).unwrap();

/// Sums over decisions of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Total {
    /// Outcomes.
    pub count: u64,
    /// Those that held.
    pub held: u64,
    /// Sum of how far the median was off, in logarithms.
    pub error: f64,
}

/// What is known of prefixes. A service has several tables, each with a part of the prefixes.
#[derive(Debug)]
pub struct Table {
    entries: LruCache<Prefix, Box<Entry>>,
    cold: LruCache<Prefix, Vec<Waiting>>,
    half_s: f64,
    /// By kind, since the beginning.
    pub totals: [Total; Kind::ALL.len()],
    /// Prefixes that made room.
    pub evicted: u64,
}

impl Table {
    /// At most `most` prefixes, with a sliding window of `window_s`.
    pub fn new(most: NonZeroUsize, window_s: f64) -> Self {
        Self {
            // grows as it fills
            entries: LruCache::unbounded(),
            cold: LruCache::new(COLD),
            half_s: window_s / 2.0,
            totals: [Total::default(); Kind::ALL.len()],
            evicted: 0,
        }
        .resized(most)
    }

    fn resized(mut self, most: NonZeroUsize) -> Self {
        self.entries.resize(most);
        self
    }

    /// Takes a sample, and calls `scored` with each decision whose outcome is known now. Returns whether the sample
    /// counts for the groups of its prefix.
    pub fn update(&mut self, sample: &Sample, mut scored: impl FnMut(&Outcome)) -> bool {
        let prefix = sample.client.prefix;
        if !self.entries.contains(&prefix) {
            let mut entry = Box::<Entry>::default();
            for waiting in self.cold.pop(&prefix).unwrap_or_default() {
                entry.wait(waiting, sample.time_s);
            }
            let gone = self.entries.push(prefix, entry);
            self.evicted += u64::from(gone.is_some());
        }
        let totals = &mut self.totals;
        let Some(entry) = self.entries.get_mut(&prefix) else {
            return false;
        };
        entry.update(sample, self.half_s, |outcome| {
            add(totals, &outcome);
            scored(&outcome);
        })
    }

    /// What is known of a prefix. To ask does not keep it from being evicted.
    pub fn get(&self, prefix: Prefix) -> Option<&Entry> {
        self.entries.peek(&prefix).map(|entry| &**entry)
    }

    /// Notes a decision, to be scored; whether it will be.
    pub fn wait(&mut self, prefix: Prefix, decision: Waiting, now_s: f64) -> bool {
        if let Some(entry) = self.entries.peek_mut(&prefix) {
            return entry.wait(decision, now_s);
        }
        let waiting = self.cold.get_or_insert_mut(prefix, Vec::new);
        waiting.retain(|one| !one.is_over(now_s));
        let has_room = waiting.len() < WAITING;
        if has_room {
            waiting.push(decision);
        }
        has_room
    }

    /// Takes what happened after a decision; none if it does not wait.
    pub fn outcome(&mut self, prefix: Prefix, id: u64, truth: f64) -> Option<Outcome> {
        let outcome = match self.entries.peek_mut(&prefix) {
            Some(entry) => {
                let outcome = entry.waits(id)?.outcome(truth);
                entry.score(outcome)
            }
            None => {
                let waiting = self.cold.peek_mut(&prefix)?;
                let at = waiting.iter().position(|one| one.id == id)?;
                waiting.swap_remove(at).outcome(truth)
            }
        };
        add(&mut self.totals, &outcome);
        Some(outcome)
    }

    /// Prefixes that are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All that is kept, the least recently used first.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, &Entry)> {
        let entries = self.entries.iter().rev();
        entries.map(|(prefix, entry)| (*prefix, &**entry))
    }

    /// Puts back what was stored, in the order of [`Table::iter`]; whether its prefix was valid.
    pub fn restore(&mut self, prefix: StoredPrefix, entry: Entry) -> bool {
        let prefix = prefix_of(prefix);
        if let Some(prefix) = prefix {
            self.entries.push(prefix, Box::new(entry));
        }
        prefix.is_some()
    }
}

fn add(totals: &mut [Total; Kind::ALL.len()], outcome: &Outcome) {
    let total = &mut totals[outcome.kind.number()];
    total.count += 1;
    total.held += u64::from(outcome.held);
    total.error += outcome.error.abs().min(10.0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::Client;

    fn sample(client: &str, time_s: f64, rate_bps: f64) -> Sample {
        Sample {
            client: Client::parse(client).unwrap(),
            time_s,
            rate_bps: Some(rate_bps),
            duration_s: None,
            rtt_s: None,
            min_rtt_s: None,
            sent: None,
        }
    }

    fn table(most: usize) -> Table {
        Table::new(NonZeroUsize::new(most).unwrap(), 600.0)
    }

    fn decision(id: u64, client: &str) -> Waiting {
        Waiting {
            id,
            kind: Kind::Throughput,
            client: Client::parse(client).unwrap().number,
            made_s: 0.5,
            until_s: Some(4.5),
            band: [1e6, 2e6, 4e6],
            bound: None,
            seen: (0.0, 0),
        }
    }

    #[test]
    fn decisions_are_scored_by_the_samples_that_follow() {
        let mut table = table(10);
        let prefix = Client::parse("192.0.2.1").unwrap().prefix;
        // nothing is known of the client when the decision is made
        assert!(table.wait(prefix, decision(7, "192.0.2.1"), 0.5));
        let mut found = Vec::new();
        for (client, time_s) in [("192.0.2.1", 1.0), ("192.0.2.9", 3.0), ("192.0.2.1", 5.0)] {
            table.update(&sample(client, time_s, 3e6), |outcome| {
                found.push(outcome.clone());
            });
        }
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].id, found[0].truth, found[0].held), (7, 3e6, true));
        assert_eq!(table.totals[Kind::Throughput.number()].held, 1);
        assert_eq!(table.outcome(prefix, 7, 1.0), None, "it is scored once");
    }

    #[test]
    fn outcomes_can_be_reported() {
        let mut table = table(10);
        let prefix = Client::parse("192.0.2.1").unwrap().prefix;
        table.update(&sample("192.0.2.1", 0.0, 3e6), |_| ());
        assert!(table.wait(prefix, decision(7, "192.0.2.1"), 0.5));
        assert!(!table.outcome(prefix, 7, 9e6).unwrap().held);
        assert_eq!(table.get(prefix).unwrap().scores[2].coverage(), Some(0.0));
    }

    proptest! {
        #[test]
        fn the_table_holds_the_prefixes_with_the_newest_samples(
            clients in prop::collection::vec(0_u8..40, 1..300),
            most in 1_usize..20,
        ) {
            let mut table = table(most);
            let mut newest: Vec<u8> = Vec::new();
            for (second, client) in clients.iter().enumerate() {
                table.update(&sample(&format!("10.0.{client}.1"), second as f64, 1e6), |_| ());
                newest.retain(|one| one != client);
                newest.push(*client);
            }
            let expected = &newest[newest.len().saturating_sub(most)..];
            let kept: Vec<String> = table.iter().map(|(prefix, _)| prefix.to_string()).collect();
            let named: Vec<String> = expected.iter().map(|one| format!("10.0.{one}.0/24")).collect();
            prop_assert_eq!(kept, named);
        }

        #[test]
        fn an_address_is_kept_by_a_prefix_that_contains_it(bits in any::<u128>(), v6 in any::<bool>()) {
            use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
            #[allow(clippy::cast_possible_truncation)]
            let address = match v6 {
                true => IpAddr::V6(Ipv6Addr::from_bits(bits)),
                false => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
            };
            let client = Client::parse(&address.to_string()).unwrap();
            let whole = Prefix::from(address);
            prop_assert_eq!(client.prefix, whole.truncated(client.prefix.length()));
            let stored = (client.prefix.is_v6(), client.prefix.bits(), client.prefix.length());
            prop_assert_eq!(prefix_of(stored), Some(client.prefix));
            prop_assert_eq!(client.prefix, client.prefix.to_string().parse().unwrap());
        }
    }
}
