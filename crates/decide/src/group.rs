//! What is known of groups of clients: wider prefixes, networks, regions, all. A client of whom nothing is known gets
//! the answer of the closest group.

use std::collections::VecDeque;

use lru::LruCache;
use pathcast_analysis::clusters::Prefix;
use serde::{Deserialize, Serialize};

use crate::curve::Counts;
use crate::distribution::{LEVELS, RateDistribution};
use crate::networks::Place;
use crate::sample::Sample;

/// Lengths of the wider prefixes, of IPv4 and of IPv6.
const WIDER: ([u8; 4], [u8; 3]) = ([20, 16, 12, 8], [40, 32, 24]);
/// Rates and round-trip times that a group keeps.
const MEMBERS: usize = 64;
/// Values needed before a group answers.
const LEAST: usize = 3;
/// What is assumed beside few values: one as much smaller, and one as much larger, than the median.
const ASSUMED_FACTOR: f64 = 3.0;

/// A group of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// A wider prefix.
    Prefix(Prefix),
    /// A network of the table.
    Network(u32),
    /// A region of the table.
    Region(u32),
    /// All clients.
    All,
}

impl Group {
    /// The groups of a client's prefix, the closest first.
    pub fn of(prefix: Prefix, place: Place) -> impl Iterator<Item = Self> {
        let lengths: &'static [u8] = if prefix.is_v6() { &WIDER.1 } else { &WIDER.0 };
        (lengths.iter())
            .map(move |&length| Self::Prefix(prefix.truncated(length)))
            .chain(place.network.map(Self::Network))
            .chain(place.region.map(Self::Region))
            .chain([Self::All])
    }
}

/// Values of members, with their times; the last ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Values(VecDeque<(f64, f32)>);

impl Values {
    fn push(&mut self, now_s: f64, value: f64) {
        if self.0.len() == MEMBERS {
            self.0.pop_front();
        }
        #[allow(clippy::cast_possible_truncation)] // seven digits are enough
        self.0.push_back((now_s, value as f32));
    }

    /// Quantiles of the values since `from_s`, and of two that are assumed; none of few.
    fn quantiles<const N: usize>(&self, from_s: f64, levels: &[f64; N]) -> Option<[f64; N]> {
        let known = self.0.iter().filter(|value| value.0 >= from_s);
        let mut values: Vec<f64> = known.map(|value| f64::from(value.1)).collect();
        if values.len() < LEAST {
            return None;
        }
        values.sort_unstable_by(f64::total_cmp);
        let median = values[values.len() / 2];
        values.insert(0, values[0].min(median / ASSUMED_FACTOR));
        values.push(values[values.len() - 1].max(median * ASSUMED_FACTOR));
        let most = (values.len() - 1) as f64;
        Some(levels.map(|level| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to most
            let (at, part) = ((level * most) as usize, (level * most).fract());
            let next = values[(at + 1).min(values.len() - 1)];
            values[at] + part * (next - values[at])
        }))
    }

    fn len(&self, from_s: f64) -> usize {
        self.0.iter().filter(|value| value.0 >= from_s).count()
    }
}

/// What is known of a group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Members {
    rates: Values,
    rtts: Values,
    /// Losses by window.
    pub counts: Counts,
    /// When the newest sample was taken.
    pub newest_s: f64,
}

impl Members {
    fn update(&mut self, sample: &Sample, half_s: f64) {
        self.newest_s = sample.time_s;
        if let Some(rate_bps) = sample.rate_bps {
            self.rates.push(sample.time_s, rate_bps);
        }
        if let Some(rtt_s) = sample.rtt_s.or(sample.min_rtt_s) {
            self.rtts.push(sample.time_s, rtt_s);
        }
        if let Some(sent) = &sample.sent {
            self.counts.update(sample.time_s, half_s, sent);
        }
    }

    /// The distribution of the members' rates.
    pub fn rates(&self, from_s: f64) -> Option<RateDistribution> {
        self.rates
            .quantiles(from_s, &LEVELS)
            .map(RateDistribution::new)
    }

    /// Whether there are enough rates for an answer, or round-trip times if rates are not needed.
    pub fn answers(&self, from_s: f64, needs_rate: bool) -> bool {
        self.rates.len(from_s) >= LEAST || (!needs_rate && self.rtts.len(from_s) >= LEAST)
    }

    /// The median of the members' round-trip times.
    pub fn rtt_s(&self, from_s: f64) -> Option<f64> {
        self.rtts.quantiles(from_s, &[0.5]).map(|one| one[0])
    }

    /// Values that an answer rests on.
    pub fn len(&self, from_s: f64) -> usize {
        self.rates.len(from_s).max(self.rtts.len(from_s))
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.rates.0.is_empty() && self.rtts.0.is_empty()
    }
}

/// All groups, the least recently used evicted.
#[derive(Debug)]
pub struct Groups {
    known: LruCache<Group, Members>,
    half_s: f64,
}

/// A group as it is stored. Networks and regions are not: their numbers are those of one table.
pub type StoredGroup = (Option<StoredPrefix>, Members);
/// A prefix as it is stored: whether it is of IPv6, its bits, its length.
pub type StoredPrefix = (bool, u128, u8);

impl Groups {
    /// At most `most` groups, with a sliding window of `window_s`.
    pub fn new(most: std::num::NonZeroUsize, window_s: f64) -> Self {
        Self {
            known: LruCache::new(most),
            half_s: window_s / 2.0,
        }
    }

    /// Takes a sample of a client in this place.
    pub fn update(&mut self, sample: &Sample, place: Place) {
        for group in Group::of(sample.client.prefix, place) {
            let half_s = self.half_s;
            self.known
                .get_or_insert_mut(group, Members::default)
                .update(sample, half_s);
        }
    }

    /// The closest group of a prefix for which `answers` finds something.
    pub fn closest<T>(
        &self,
        prefix: Prefix,
        place: Place,
        answers: impl Fn(&Members) -> Option<T>,
    ) -> Option<(Group, &Members, T)> {
        Group::of(prefix, place).find_map(|group| {
            let members = self.known.peek(&group)?;
            Some((group, members, answers(members)?))
        })
    }

    /// Groups that are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Those to be stored, the least recently used first.
    pub fn stored(&self) -> Vec<StoredGroup> {
        let known = self.known.iter().rev();
        known
            .filter_map(|(group, members)| match group {
                Group::Prefix(prefix) => Some((
                    Some((prefix.is_v6(), prefix.bits(), prefix.length())),
                    members.clone(),
                )),
                Group::All => Some((None, members.clone())),
                Group::Network(_) | Group::Region(_) => None,
            })
            .collect()
    }

    /// Puts back what was stored.
    pub fn restore(&mut self, stored: Vec<StoredGroup>) {
        for (prefix, members) in stored {
            let group = match prefix {
                None => Some(Group::All),
                Some(stored) => prefix_of(stored).map(Group::Prefix),
            };
            if let Some(group) = group {
                self.known.put(group, members);
            }
        }
    }
}

/// A prefix from its stored form, if that is valid.
pub fn prefix_of((v6, bits, length): StoredPrefix) -> Option<Prefix> {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    let address = match v6 {
        true => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        #[allow(clippy::cast_possible_truncation)] // 32 bits are left
        false => IpAddr::V4(Ipv4Addr::from_bits((bits >> 96) as u32)),
    };
    let whole = Prefix::from(address);
    let prefix = whole.truncated(length);
    (length <= whole.length() && prefix.bits() == bits && prefix.is_v6() == v6).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks::Networks;
    use crate::sample::Client;

    fn sample(client: &str, rate_bps: f64) -> Sample {
        Sample {
            client: Client::parse(client).unwrap(),
            time_s: 100.0,
            rate_bps: Some(rate_bps),
            duration_s: None,
            rtt_s: Some(0.05),
            min_rtt_s: None,
            sent: None,
        }
    }

    #[test]
    fn a_new_client_gets_the_answer_of_the_closest_group() {
        let mut groups = Groups::new(1000.try_into().unwrap(), 600.0);
        let table = Networks::parse("172.16.0.0/12,AS1,eu\n192.0.2.0/24,AS1,eu\n").unwrap();
        for i in 0..20 {
            let near = sample(&format!("10.0.{}.1", i % 16), 1e6);
            groups.update(&near, table.place(near.client.prefix));
            let far = sample(&format!("172.16.{i}.1"), 1e8);
            groups.update(&far, table.place(far.client.prefix));
        }
        let median = |client: &str| {
            let prefix = Client::parse(client).unwrap().prefix;
            let place = table.place(prefix);
            let answer = |members: &Members| members.rates(0.0).map(|one| one.quantile_bps(0.5));
            let (group, _, rate) = groups.closest(prefix, place, answer).unwrap();
            (group, rate)
        };
        let (group, rate) = median("10.0.9.9");
        assert_eq!(group, Group::Prefix("10.0.0.0/20".parse().unwrap()));
        assert!((0.9e6..1.1e6).contains(&rate), "{rate}");
        let (group, rate) = median("192.0.2.9");
        assert_eq!(group, Group::Network(0));
        assert!((0.9e8..1.1e8).contains(&rate), "{rate}");
        assert_eq!(median("198.51.100.1").0, Group::All);
    }

    #[test]
    fn what_is_stored_comes_back() {
        let mut groups = Groups::new(100.try_into().unwrap(), 600.0);
        for client in ["10.0.0.1", "2001:db8::1"] {
            groups.update(&sample(client, 1e6), Place::default());
        }
        let mut again = Groups::new(100.try_into().unwrap(), 600.0);
        again.restore(groups.stored());
        assert_eq!(again.stored(), groups.stored());
        assert_eq!(prefix_of((false, 1, 24)), None);
        assert_eq!(prefix_of((true, 0xffff_c000_0200 << 32 >> 32, 200)), None);
    }
}
