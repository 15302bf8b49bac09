//! Flows of the same path that began earlier: how they went on at the age that a new flow has now.
//!
//! A client's next connection crosses the same path as its last. What the last one reached says more of a flow that has
//! just begun than its own first second does.

use std::collections::VecDeque;

use pathcast_window_law::Cc;

/// How many numbers siblings add to a beginning's.
pub(crate) const FEATURES: usize = 10;
/// Packets sent are known at these ages: this times a power of the square root of two, seconds.
const FIRST_AGE_S: f64 = 0.25;
const AGES: usize = 20;
/// The newest are kept.
const KEPT: usize = 8;
/// Each counts so much of the one that began after it.
const FADES: f64 = 0.7;
/// A flow whose newest record is older than this, in seconds, when another begins has ended.
const ENDED_S: f64 = 0.5;
/// Ratios count as at most this, in ln: a factor of 50.
const MOST: f64 = 4.0;

fn age_s(place: usize) -> f64 {
    FIRST_AGE_S * 2_f64.powf(0.5 * place as f64)
}

/// What a flow sent since its first record, by its age. A digest of 200 bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Sibling {
    cc: Cc,
    /// When its first record came, seconds, and the counter there, packets.
    start_s: f64,
    first_packets: f64,
    /// Packets since, at each age that has passed.
    sent: [f32; AGES],
    passed: usize,
    /// Age and packets at the newest record.
    end_s: f64,
    end_packets: f64,
    /// The shortest round-trip time, seconds; infinite if unknown.
    least_rtt_s: f64,
    is_over: bool,
}

impl Sibling {
    /// A flow whose first record came at this time with this counter.
    pub(crate) fn new(cc: Cc, start_s: f64, first_packets: f64) -> Self {
        Self {
            cc,
            start_s,
            first_packets,
            sent: [0.0; AGES],
            passed: 0,
            end_s: 0.0,
            end_packets: 0.0,
            least_rtt_s: f64::INFINITY,
            is_over: false,
        }
    }

    /// The same; later records are of another flow.
    pub(crate) fn ended(mut self) -> Self {
        self.is_over = true;
        self
    }

    /// Takes the counter at an age, in seconds since the first record; ages never decrease.
    pub(crate) fn observe(&mut self, at_s: f64, packets: f64, least_rtt_s: f64) {
        if self.is_over {
            return;
        }
        let packets = packets - self.first_packets;
        while self.passed < AGES && age_s(self.passed) <= at_s {
            // between two records, in proportion
            let part = if at_s > self.end_s {
                (age_s(self.passed) - self.end_s) / (at_s - self.end_s)
            } else {
                1.0
            };
            let packets = self.end_packets + part * (packets - self.end_packets);
            #[allow(clippy::cast_possible_truncation)] // precision enough
            let packets = packets as f32;
            self.sent[self.passed] = packets;
            self.passed += 1;
        }
        (self.end_s, self.end_packets) = (at_s, packets);
        self.least_rtt_s = least_rtt_s;
    }

    /// Packets sent by an age, at most the last one known.
    fn sent_by(&self, at_s: f64) -> f64 {
        let (mut from, mut upto) = ((0.0, 0.0), (self.end_s, self.end_packets));
        for place in 0..self.passed {
            let known = (age_s(place), f64::from(self.sent[place]));
            if known.0 <= at_s {
                from = known;
            } else {
                upto = known;
                break;
            }
        }
        if upto.0 <= from.0 || at_s >= upto.0 {
            return upto.1;
        }
        from.1 + (upto.1 - from.1) * (at_s - from.0) / (upto.0 - from.0)
    }

    /// Packets per second in its last second if it was still sending at that time.
    fn rate_when(&self, now_s: f64) -> Option<f64> {
        let lately_s = (self.end_s - 1.0).max(0.0);
        let packets = self.end_packets - self.sent_by(lately_s);
        let is_on = now_s - (self.start_s + self.end_s) < ENDED_S;
        (is_on && packets > 0.0).then(|| packets / (self.end_s - lately_s))
    }

    /// Packets per second between two ages, and the part of them that is known. What it sent in the second half of its
    /// life stands for what lies beyond; `None` if it lasted less than the first age or sent nothing then.
    fn rate(&self, from_s: f64, to_s: f64) -> Option<(f64, f64)> {
        if self.end_s < FIRST_AGE_S {
            return None;
        }
        let until_s = to_s.min(self.end_s);
        let known = ((until_s - from_s) / (to_s - from_s)).max(0.0);
        let (from_s, until_s) = if known > 0.1 {
            (from_s, until_s)
        } else {
            (0.5 * self.end_s, self.end_s)
        };
        let rate = (self.sent_by(until_s) - self.sent_by(from_s)) / (until_s - from_s);
        (rate > 0.0).then_some((rate, known))
    }
}

/// The newest flows of one path, or of one prefix of clients.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Siblings {
    /// In the order in which they began.
    flows: VecDeque<Sibling>,
}

impl Siblings {
    /// Takes the next flow, which began after those before. The eight newest are kept; flows of less than 0.25 s say
    /// nothing and are left out.
    pub fn push(&mut self, flow: Sibling) {
        if flow.end_s < FIRST_AGE_S || flow.end_packets <= 0.0 {
            return;
        }
        self.flows.push_back(flow);
        if self.flows.len() > KEPT {
            self.flows.pop_front();
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// What they say of the next `horizon_s` of a young flow; rates as ln of their ratio to its own. In this order: what the
    /// newest one did at that age, the mean of all and their standard deviation, what they had done just before, the part of
    /// that time that is known, the part with the same congestion control, ln of the ratio of round-trip times, ln of their
    /// weight, and of those that were sending when it began ln(1 + number) and the sum of their rates.
    pub(crate) fn features(&self, of: &Young, horizon_s: f64) -> [f64; FEATURES] {
        let mut weight = 1.0;
        let (mut total, mut ahead, mut square) = (0.0, 0.0, 0.0);
        let (mut beside, mut rate_beside) = (0.0_f64, 0.0);
        let (mut newest, mut lately, mut known, mut same, mut rtt) = (None, 0.0, 0.0, 0.0, 0.0);
        let over = |rate: f64| (rate.ln() - of.ln_rate).clamp(-MOST, MOST);
        for flow in self.flows.iter().rev() {
            if let Some(rate) = flow.rate_when(of.start_s) {
                beside += 1.0;
                rate_beside += rate;
            }
            let Some((rate, part)) = flow.rate(of.age_s, of.age_s + horizon_s) else {
                continue;
            };
            let next = over(rate);
            newest.get_or_insert(next);
            total += weight;
            ahead += weight * next;
            square += weight * next * next;
            known += weight * part;
            lately += weight
                * flow
                    .rate(of.age_s - of.last_s, of.age_s)
                    .map_or(0.0, |last| over(last.0));
            same += if flow.cc == of.cc { weight } else { 0.0 };
            let ratio = (flow.least_rtt_s / of.least_rtt_s).ln();
            rtt += weight
                * if ratio.is_finite() {
                    ratio.clamp(-MOST, MOST)
                } else {
                    0.0
                };
            weight *= FADES;
        }
        if total == 0.0 {
            return [0.0; FEATURES];
        }
        let mean = |sum: f64| sum / total;
        [
            newest.unwrap_or(0.0),
            mean(ahead),
            (mean(square) - mean(ahead).powi(2)).max(0.0).sqrt(),
            mean(lately),
            mean(known),
            mean(same),
            mean(rtt),
            total.ln(),
            beside.ln_1p(),
            if beside > 0.0 { over(rate_beside) } else { 0.0 },
        ]
    }
}

/// The flow that siblings are compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Young {
    pub(crate) cc: Cc,
    /// When its first record came, seconds.
    pub(crate) start_s: f64,
    /// Seconds since its first record, and of these the last one.
    pub(crate) age_s: f64,
    pub(crate) last_s: f64,
    /// ln of its rate in these.
    pub(crate) ln_rate: f64,
    pub(crate) least_rtt_s: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 packets/s for a second, then another rate, with a record each 0.1 s.
    fn flow(rate: f64, end_s: f64) -> Sibling {
        let mut flow = Sibling::new(Cc::Cubic, 10.0, 500.0);
        for tenth in 0..=(10.0 * end_s).round() as u32 {
            let at_s = f64::from(tenth) * 0.1;
            let packets = 100.0 * at_s.min(1.0) + rate * (at_s - 1.0).max(0.0);
            flow.observe(at_s, 500.0 + packets, 0.04);
        }
        flow
    }

    fn young(age_s: f64) -> Young {
        Young {
            cc: Cc::Cubic,
            start_s: 100.0,
            age_s,
            last_s: age_s.min(1.0),
            ln_rate: 100_f64.ln(),
            least_rtt_s: 0.04,
        }
    }

    #[test]
    fn a_digest_knows_the_rate_at_each_age() {
        let flow = flow(1000.0, 40.0);
        for (from_s, to_s, rate) in [(0.0, 0.5, 100.0), (2.0, 10.0, 1000.0), (8.0, 38.0, 1000.0)] {
            let (got, known) = flow.rate(from_s, to_s).unwrap();
            assert!((got / rate - 1.0).abs() < 1e-3, "{from_s} {to_s}: {got}");
            assert_eq!(known, 1.0);
        }
        // beyond its end what it did at last goes on
        let (got, known) = flow.rate(50.0, 60.0).unwrap();
        assert!(
            (got / 1000.0 - 1.0).abs() < 1e-3 && known == 0.0,
            "{got} {known}"
        );
        let (_, known) = flow.rate(30.0, 50.0).unwrap();
        assert!((known - 0.5).abs() < 1e-9, "{known}");
    }

    #[test]
    fn the_newest_counts_most_and_short_flows_do_not() {
        let mut siblings = Siblings::default();
        siblings.push(flow(1.0, 0.2));
        assert!(siblings.is_empty());
        for rate in [500.0, 1000.0] {
            siblings.push(flow(rate, 30.0));
        }
        let features = siblings.features(&young(2.0), 10.0);
        assert!((features[0] - 10_f64.ln()).abs() < 0.01, "{features:?}");
        let mean = (10_f64.ln() + FADES * 5_f64.ln()) / (1.0 + FADES);
        assert!((features[1] - mean).abs() < 0.01, "{features:?}");
        assert!(features[2] > 0.3 && features[5] == 1.0 && features[6] == 0.0);
        assert_eq!(features[8..], [0.0, 0.0]);
        // begun while both were sending
        let beside = Young {
            start_s: 40.2,
            ..young(2.0)
        };
        let features = siblings.features(&beside, 10.0);
        assert!((features[8] - 2_f64.ln_1p()).abs() < 1e-12, "{features:?}");
        assert!((features[9] - 15_f64.ln()).abs() < 0.01, "{features:?}");
        for _ in 0..20 {
            siblings.push(flow(700.0, 30.0));
        }
        assert_eq!(siblings.len(), KEPT);
        assert!(siblings.features(&young(2.0), 10.0)[2] < 1e-6);
    }

    #[test]
    fn odd_siblings_give_numbers() {
        let mut siblings = Siblings::default();
        let mut stopped = flow(1000.0, 3.0);
        stopped.observe(200.0, 500.0 + 2100.0, f64::INFINITY);
        siblings.push(stopped);
        for age_s in [0.01, 5.0, 500.0] {
            let features = siblings.features(&young(age_s), 30.0);
            assert!(features.iter().all(|one| one.is_finite()), "{features:?}");
        }
    }
}
