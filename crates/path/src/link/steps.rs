//! A serial link whose rate changes at given moments.

use pathcast_base::{Bandwidth, Span, Time};

use crate::reader::{RATE, Read, TIME, Table};
use crate::writer::join;

/// Pieces of constant rate, once or again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// When each piece begins, and its rate; none: an outage. The first begins at zero.
    steps: Vec<(Time, Option<Bandwidth>)>,
    /// The period after which the pieces repeat; none: the last piece has no end.
    period: Option<Span>,
}

impl Steps {
    /// These pieces; see the fields.
    ///
    /// # Errors
    /// There is no piece, the first does not begin at zero, they are not in order, the period ends before
    /// the last begins, or from some moment on nothing could be sent. The error says what was expected.
    pub fn new(
        steps: Vec<(Time, Option<Bandwidth>)>,
        period: Option<Span>,
    ) -> Result<Self, String> {
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
            return Err("got no steps, expected at least one".into());
        };
        if first.0 != Time::ZERO {
            return Err("expected the first step at \"0 ms\"".into());
        }
        if !steps.windows(2).all(|pair| pair[0].0 < pair[1].0) {
            return Err(
                "expected steps in the order of their time, no two at the same time".into(),
            );
        }
        if period.is_some_and(|period| Time::ZERO + period <= last.0) {
            return Err("expected a period that ends after the last step begins".into());
        }
        let for_ever = match period {
            None => last.1.is_none(),
            Some(_) => steps.iter().all(|(_, rate)| rate.is_none()),
        };
        if for_ever {
            return Err("got a rate of 0 for ever, expected that packets can be sent".into());
        }
        Ok(Self { steps, period })
    }

    /// The pieces.
    pub fn steps(&self) -> &[(Time, Option<Bandwidth>)] {
        &self.steps
    }

    /// After which they begin anew.
    pub const fn period(&self) -> Option<Span> {
        self.period
    }

    /// The mean over a period; without one, the first rate that is not 0.
    pub fn mean_rate(&self) -> Bandwidth {
        let rates = || self.steps.iter().filter_map(|(_, rate)| *rate);
        let first = rates().next().expect("some rate is not 0");
        let Some(period) = self.period else {
            return first;
        };
        let bits = self.bits_within(period);
        Bandwidth::from_bps(bits / period.as_secs()).unwrap_or(first)
    }

    /// What can be sent in one period, in bits.
    fn bits_within(&self, period: Span) -> f64 {
        let ends = self.steps[1..].iter().map(|(at, _)| *at);
        self.steps
            .iter()
            .zip(ends.chain([Time::ZERO + period]))
            .filter_map(|((begin, rate), end)| {
                Some(rate.as_ref()?.as_bps() * end.since(*begin).as_secs())
            })
            .sum()
    }

    /// The highest rate.
    pub fn peak_rate(&self) -> Bandwidth {
        let rates = self.steps.iter().filter_map(|(_, rate)| *rate);
        rates
            .reduce(|a, b| if b > a { b } else { a })
            .expect("some rate is not 0")
    }
}

/// The link, in one of its pieces.
#[derive(Clone, Debug)]
pub struct SteppedLink {
    steps: Steps,
    /// The piece in which `free_at` lies, its end, and where its period began.
    index: usize,
    period_start: Time,
    free_at: Time,
    /// Part of a nanosecond owed from earlier packets.
    carry_ns: f64,
}

impl SteppedLink {
    /// A link in its first piece, idle.
    pub const fn new(steps: Steps) -> Self {
        Self {
            steps,
            index: 0,
            period_start: Time::ZERO,
            free_at: Time::ZERO,
            carry_ns: 0.0,
        }
    }

    /// The moment from which a new packet could be sent.
    pub const fn free_at(&self) -> Time {
        self.free_at
    }

    fn piece_end(&self) -> Time {
        let next = self.steps.steps.get(self.index + 1);
        match (next, self.steps.period) {
            (Some((at, _)), _) => self.period_start + at.since(Time::ZERO),
            (None, Some(period)) => self.period_start + period,
            (None, None) => Time::MAX,
        }
    }

    fn next_piece(&mut self) {
        self.index += 1;
        if self.index == self.steps.steps.len() {
            self.index = 0;
            self.period_start += self.steps.period.expect("the last piece ends");
        }
    }

    /// Sends `size_bytes` as soon as the link is free, `now` at the earliest: returns the moments
    /// at which the transmission begins and ends. A transmission continues across changes of rate.
    pub fn transmit(&mut self, now: Time, size_bytes: u32) -> (Time, Time) {
        if self.free_at < now {
            self.carry_ns = 0.0;
        }
        let start = self.free_at.max(now);
        if start == Time::MAX {
            return (start, Time::MAX); // no piece ends later
        }
        if let Some(period) = self.steps.period {
            // whole periods without a packet
            let idle = start.since(self.period_start).as_nanos() / period.as_nanos();
            if idle > 1 {
                self.period_start += period.mul_div(idle - 1, 1);
            }
        }
        while self.piece_end() <= start {
            self.next_piece();
        }
        let mut bits_left = f64::from(size_bytes) * 8.0;
        let mut at = start;
        loop {
            let end = self.piece_end();
            if let (_, Some(rate)) = &self.steps.steps[self.index] {
                let needs_ns = bits_left * 1e9 / rate.as_bps() + self.carry_ns;
                let has_ns = end.since(at).as_nanos();
                if needs_ns <= has_ns as f64 {
                    let whole = needs_ns.floor();
                    self.carry_ns = needs_ns - whole;
                    self.free_at = at + Span::from_nanos(whole as u64);
                    return (start, self.free_at);
                }
                // not by way of `needs_ns`, which is infinite at the lowest of rates
                let sent = (has_ns as f64 - self.carry_ns) * rate.as_bps() / 1e9;
                bits_left = (bits_left - sent).max(0.0);
                self.carry_ns = 0.0;
            }
            if end == Time::MAX {
                // slower than any run is long
                self.free_at = Time::MAX;
                return (start, Time::MAX);
            }
            at = end;
            self.next_piece();
            if let (0, Some(period)) = (self.index, self.steps.period) {
                // a packet may take any number of periods: skip all whole ones but the last in one step
                let bits = self.steps.bits_within(period);
                let periods = (bits_left / bits).floor() - 1.0;
                if periods >= 1.0 {
                    bits_left = (bits_left - periods * bits).max(0.0);
                    let nanos = period.as_nanos().saturating_mul(periods as u64);
                    self.period_start += Span::from_nanos(nanos);
                    at = self.period_start;
                }
            }
        }
    }
}

impl Steps {
    pub(super) const KEYS: &[&str] = &["steps", "period"];

    pub(super) fn read(table: Table<'_, '_>) -> Read<Self> {
        const EXPECTED: &str = "a list of steps such as [\"10 s\", \"12 Mbit/s\"]";
        let list = table.need("steps")?;
        let mut steps = Vec::new();
        for item in list.list(EXPECTED)? {
            let [at, rate] = item.pair("a step such as [\"10 s\", \"12 Mbit/s\"]")?;
            let text = rate.text(RATE)?;
            let rate = match Bandwidth::parse_or_zero(text) {
                Ok(bandwidth) => bandwidth,
                Err(error) => return rate.wrong(error),
            };
            steps.push((Time::ZERO + at.quantity(TIME)?, rate));
        }
        let period = table
            .get("period")
            .map(|field| field.quantity(TIME))
            .transpose()?;
        match Self::new(steps, period) {
            Ok(steps) => Ok(steps),
            Err(message) => list.wrong(message),
        }
    }

    pub(super) fn to_toml(&self) -> String {
        let items = join(self.steps().iter().map(|(at, rate)| {
            let rate = rate.map_or("0 bit/s".into(), |rate| rate.to_string());
            format!("[\"{}\", \"{rate}\"]", at.since(Time::ZERO))
        }));
        let period = self
            .period()
            .map_or(String::new(), |period| format!(", period = \"{period}\""));
        format!("{{ kind = \"steps\", steps = [{items}]{period} }}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> Time {
        Time::from_nanos(micros * 1000)
    }

    fn steps(pieces: &[(u64, f64)], period_us: Option<u64>) -> Result<Steps, String> {
        let pieces = pieces
            .iter()
            .map(|(us, bps)| (at(*us), Bandwidth::from_bps(*bps)));
        Steps::new(
            pieces.collect(),
            period_us.map(|us| Span::from_nanos(us * 1000)),
        )
    }

    #[test]
    fn a_transmission_goes_on_through_changes_of_rate_and_outages() {
        // 12 Mbit/s for 0.5 ms, nothing for 1 ms, then 24 Mbit/s
        let mut link =
            SteppedLink::new(steps(&[(0, 12e6), (500, 0.0), (1500, 24e6)], None).unwrap());
        // half of the packet in the first piece, the other half in 0.25 ms of the last
        assert_eq!(link.transmit(Time::ZERO, 1500), (Time::ZERO, at(1750)));
        assert_eq!(link.transmit(Time::ZERO, 1500), (at(1750), at(2250)));
        assert_eq!(link.transmit(at(9000), 1500), (at(9000), at(9500)));
    }

    #[test]
    fn periods_come_again_and_idle_ones_are_skipped() {
        let steps = steps(&[(0, 12e6), (2000, 24e6)], Some(4000)).unwrap();
        assert_eq!(steps.mean_rate().as_bps(), 18e6);
        let mut link = SteppedLink::new(steps);
        let mut ends = (0..6).map(|_| link.transmit(Time::ZERO, 1500).1);
        assert!(ends.by_ref().take(2).eq([at(1000), at(2000)]));
        assert!(ends.eq([at(2500), at(3000), at(3500), at(4000)]));
        let later = at(4_000_000_002_000);
        assert_eq!(
            link.transmit(later, 1500).1,
            later + Span::from_nanos(500_000)
        );
    }

    #[test]
    fn a_transmission_may_take_any_number_of_periods() {
        // 1 bit in 1 ns, then nothing for 2 ns: 12,000 bits take 12,000 periods less the last pause
        let nanos = |n| Time::from_nanos(n);
        let rate = Bandwidth::from_bps;
        let bursts = vec![(nanos(0), rate(1e9)), (nanos(1), None)];
        let mut link = SteppedLink::new(Steps::new(bursts, Some(Span::from_nanos(3))).unwrap());
        assert_eq!(link.transmit(Time::ZERO, 1500).1, nanos(3 * 12_000 - 2));
        assert_eq!(link.transmit(Time::ZERO, 1500).1, nanos(3 * 24_000 - 2));
        // a bit a second in periods of a nanosecond: more of them than could be counted one by one
        let slow = Steps::new(vec![(nanos(0), rate(1.0))], Some(Span::from_nanos(1))).unwrap();
        let end = SteppedLink::new(slow).transmit(Time::ZERO, 1500).1;
        assert!((end.as_secs() / 12_000.0 - 1.0).abs() < 1e-9, "{end:?}");
    }

    #[test]
    fn what_takes_longer_than_any_run_never_ends() {
        for period in [None, Some(Span::from_nanos(1))] {
            let slow = vec![(Time::ZERO, Bandwidth::from_bps(1e-300))];
            let mut link = SteppedLink::new(Steps::new(slow, period).unwrap());
            assert_eq!(link.transmit(Time::ZERO, 1500), (Time::ZERO, Time::MAX));
            assert_eq!(link.transmit(Time::ZERO, 1500), (Time::MAX, Time::MAX));
        }
    }

    #[test]
    fn constant_pieces_deliver_their_rate_without_drift() {
        let mut link = SteppedLink::new(steps(&[(0, 7e6)], None).unwrap());
        for _ in 0..1_000_000 {
            link.transmit(Time::ZERO, 1500);
        }
        let expected_s = 1e6 * 1500.0 * 8.0 / 7e6;
        assert!((link.free_at().as_secs() / expected_s - 1.0).abs() < 1e-9);
    }

    #[test]
    fn impossible_steps_are_refused() {
        assert!(steps(&[], None).unwrap_err().contains("no steps"));
        assert!(steps(&[(5, 1e6)], None).unwrap_err().contains("first step"));
        assert!(
            steps(&[(0, 1e6), (9, 2e6), (9, 1e6)], None)
                .unwrap_err()
                .contains("order")
        );
        assert!(
            steps(&[(0, 1e6), (9, 0.0)], None)
                .unwrap_err()
                .contains("for ever")
        );
        assert!(
            steps(&[(0, 0.0), (9, 0.0)], Some(99))
                .unwrap_err()
                .contains("for ever")
        );
        assert!(
            steps(&[(0, 1e6), (9, 0.0)], Some(9))
                .unwrap_err()
                .contains("period")
        );
        assert!(steps(&[(0, 1e6), (9, 0.0)], Some(10)).is_ok());
    }
}
