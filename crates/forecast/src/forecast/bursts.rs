//! Applications that send and pause: what followed the same moment of earlier bursts and pauses.
//!
//! A player fetches a segment, waits, and fetches the next. Seconds are too coarse for that: what comes next depends on
//! how long it has sent or paused. The forecast is the median of what followed when earlier bursts, or pauses, were as
//! old as this one.

use std::collections::VecDeque;

/// Nothing sent for so long is a pause, in seconds and in round trips.
const PAUSE_S: f64 = 0.3;
const PAUSE_RTTS: f64 = 3.0;
/// Bursts and pauses that are remembered.
const KEPT: usize = 48;
/// They are looked for in so many seconds.
const PAST_S: f64 = 100.0;
/// No forecast rests on fewer, and none needs more.
const FEWEST: usize = 2;
const MOST: usize = 12;

/// When a sender began and ceased to send.
#[derive(Debug, Clone, Default)]
pub(super) struct Bursts {
    /// When each burst or pause began, and whether it is a burst; oldest first.
    turns: VecDeque<(f64, bool)>,
    /// The newest record with more packets sent than before: its time, and how many.
    sent: Option<(f64, f64)>,
    /// What a pause is at least, seconds.
    pause_s: f64,
}

impl Bursts {
    /// Takes the packets sent so far.
    pub(super) fn observe(&mut self, time_s: f64, packets: f64, rtt_s: f64) {
        self.pause_s = PAUSE_S.max(PAUSE_RTTS * rtt_s);
        let Some((sent_s, before)) = self.sent else {
            self.sent = Some((time_s, packets));
            return;
        };
        if packets <= before {
            return;
        }
        if time_s - sent_s > self.pause_s {
            self.turn(sent_s + self.pause_s, false);
            self.turn(time_s, true);
        }
        self.sent = Some((time_s, packets));
    }

    /// Time went back or leapt.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn turn(&mut self, time_s: f64, is_burst: bool) {
        if self.turns.len() == KEPT {
            self.turns.pop_front();
        }
        self.turns.push_back((time_s, is_burst));
    }

    /// What followed when earlier bursts or pauses were as old as this one: the median of `rate(from_s, to_s)`, which is
    /// NaN where it is not known. `None` with fewer than two such.
    pub(super) fn followed(
        &self,
        now_s: f64,
        horizon_s: f64,
        rate: impl Fn(f64, f64) -> f64,
    ) -> Option<f64> {
        let paused_s = self.sent?.0 + self.pause_s;
        let (began_s, is_burst) = if now_s > paused_s {
            (paused_s, false)
        } else {
            *self.turns.back()?
        };
        let age_s = now_s - began_s;
        let mut found = [0.0; MOST];
        let mut count = 0;
        let mut next_s = f64::INFINITY;
        for &(start_s, was_burst) in self.turns.iter().rev() {
            let end_s = std::mem::replace(&mut next_s, start_s);
            let from_s = start_s + age_s;
            let is_like = was_burst == is_burst && from_s <= end_s;
            if !is_like || from_s + horizon_s > now_s {
                continue;
            }
            if start_s + PAST_S < now_s || count == MOST {
                break;
            }
            let after = rate(from_s, from_s + horizon_s);
            if !after.is_nan() {
                found[count] = after;
                count += 1;
            }
        }
        if count < FEWEST {
            return None;
        }
        let found = &mut found[..count];
        found.sort_unstable_by(f64::total_cmp);
        Some(0.5 * (found[(count - 1) / 2] + found[count / 2]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 packets in 1 s, then nothing for 3.2 s.
    fn sent(time_s: f64) -> f64 {
        let turns = (time_s / 4.2).floor();
        100.0 * turns + 100.0 * (time_s - 4.2 * turns).min(1.0)
    }

    fn player(seconds: f64) -> Bursts {
        let mut bursts = Bursts::default();
        for step in 0.. {
            let time_s = f64::from(step) * 0.01;
            if time_s > seconds {
                break;
            }
            bursts.observe(time_s, sent(time_s), 0.02);
        }
        bursts
    }

    fn rate(from_s: f64, to_s: f64) -> f64 {
        (sent(to_s) - sent(from_s)) / (to_s - from_s)
    }

    #[test]
    fn a_player_fetches_its_next_segment_when_it_is_time() {
        for now_s in [60.0, 61.3, 62.6, 63.0, 64.9] {
            let bursts = player(now_s);
            for horizon_s in [0.5, 1.0, 5.0, 10.0] {
                let said = bursts.followed(now_s, horizon_s, rate).unwrap();
                let truth = rate(now_s, now_s + horizon_s);
                assert!(
                    (said - truth).abs() < 3.0,
                    "{now_s} {horizon_s}: {said} {truth}"
                );
            }
        }
    }

    #[test]
    fn no_pause_no_bursts() {
        let mut bursts = Bursts::default();
        for step in 0..10_000 {
            let time_s = f64::from(step) * 0.01;
            bursts.observe(time_s, 10.0 * f64::from(step), 0.05);
        }
        assert_eq!(bursts.followed(99.99, 1.0, |_, _| 1.0), None);
        // 0.4 s are no pause where a round trip takes 0.2 s
        let mut slow = Bursts::default();
        for step in 0..1000 {
            slow.observe(0.4 * f64::from(step), f64::from(step), 0.2);
        }
        assert!(slow.turns.is_empty());
    }

    #[test]
    fn memory_is_bounded_and_what_is_not_known_says_nothing() {
        let bursts = player(1000.0);
        assert_eq!(bursts.turns.len(), KEPT);
        assert_eq!(bursts.followed(1000.0, 1.0, |_, _| f64::NAN), None);
        assert_eq!(player(6.0).followed(6.0, 1.0, rate), None);
    }
}
