//! The application of a flow: when it writes how much.

use pathcast_path::seed::{generator, uniform};
use pathcast_path::{Size, Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::varying::Varying;
use crate::workload::{Arrivals, Workload};

/// What an application does at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// It writes a message of this many bytes.
    Message(u64),
    /// From now on it writes as much as is taken.
    Endless,
    /// What was not sent by now it does not want to send any more.
    Stop,
}

/// Where a workload stands.
#[derive(Clone, Debug)]
enum Phase {
    /// Nothing was written yet, or the next step begins afresh.
    Ready,
    /// `Endless` was written, and is to be stopped at the next step.
    Greedy,
    /// A series of writes that began at `begin`: `written` so far, `elapsed_s` until the last.
    Series {
        begin: Time,
        written: u64,
        elapsed_s: f64,
        end: Time,
    },
}

/// The application of one flow. It owns no clock: it says when it wants to write next, and is told
/// when what it wrote has arrived.
#[derive(Clone, Debug)]
pub struct Source {
    workload: Workload,
    rng: Xoshiro256PlusPlus,
    phase: Phase,
    /// When it acts next; none: not before something arrives, or never.
    next: Option<Time>,
    /// Messages that it may still begin.
    left: u64,
    stop: Time,
}

impl Source {
    /// The application of flow number `flow`, which begins at `start` and begins nothing new from
    /// `stop` on.
    pub fn new(workload: &Workload, start: Time, stop: Option<Time>, seed: u64, flow: u32) -> Self {
        let left = match workload {
            Workload::Transfer { count, .. }
            | Workload::ConstantRate { count, .. }
            | Workload::RequestResponse { count, .. } => count.unwrap_or(u64::MAX),
            Workload::Bulk | Workload::OnOff { .. } | Workload::Replay(_) => u64::MAX,
        };
        Self {
            workload: workload.clone(),
            rng: generator(seed, &format!("flow.{flow}.source")),
            phase: Phase::Ready,
            next: Some(start),
            left,
            stop: stop.unwrap_or(Time::MAX),
        }
    }

    /// When `write` is to be called next; none: not before something arrives, or never again.
    #[inline]
    pub const fn next_write(&self) -> Option<Time> {
        self.next
    }

    /// Whether it writes no more, whatever arrives. What it wrote may still be under way.
    pub const fn is_finished(&self) -> bool {
        self.left == 0
    }

    /// What it does at `now`; call until none.
    pub fn write(&mut self, now: Time) -> Option<Write> {
        while self.next.is_some_and(|next| next <= now) && self.left > 0 {
            let at = self.next.expect("checked");
            let was_greedy = matches!(self.phase, Phase::Greedy);
            if at >= self.stop {
                self.finish();
                return was_greedy.then_some(Write::Stop);
            }
            if let Some(write) = self.step(at) {
                return Some(write);
            }
        }
        None
    }

    const fn finish(&mut self) {
        self.left = 0;
        self.next = None;
    }

    /// Counts a message that is written.
    const fn count(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            self.next = None;
        }
    }

    /// One step at its moment `at`; none if nothing is written in it.
    fn step(&mut self, at: Time) -> Option<Write> {
        match (&self.workload, self.phase.clone()) {
            (Workload::Bulk, Phase::Ready) => {
                self.phase = Phase::Greedy;
                self.next = (self.stop < Time::MAX).then_some(self.stop);
                Some(Write::Endless)
            }
            (Workload::Bulk, _) => None,
            (Workload::Transfer { size, .. }, _) => {
                let size = *size;
                self.next = None; // until it has arrived
                self.count();
                Some(Write::Message(self.bytes(size)))
            }
            (Workload::RequestResponse { request, .. }, _) => {
                let request = *request;
                self.next = None;
                self.count();
                Some(Write::Message(self.bytes(request)))
            }
            (Workload::OnOff { on, rate, .. }, Phase::Ready) => {
                let (on, greedy) = (*on, rate.is_none());
                let end = at + self.span(on);
                if greedy {
                    self.phase = Phase::Greedy;
                    self.next = Some(end.min(self.stop));
                    return Some(Write::Endless);
                }
                self.phase = series(at, end);
                None // its first portion is due now
            }
            (Workload::OnOff { off, .. }, Phase::Greedy) => {
                let off = *off;
                self.phase = Phase::Ready;
                self.next = Some(at + self.span(off));
                Some(Write::Stop)
            }
            (
                Workload::OnOff { off, rate, .. },
                Phase::Series {
                    begin,
                    written,
                    end,
                    ..
                },
            ) => {
                let (off, (rate, portion)) = (*off, rate.expect("a series has a rate"));
                if at >= end {
                    self.phase = Phase::Ready;
                    self.next = Some(end + self.span(off));
                    return None;
                }
                let written = written + 1;
                let elapsed_s = written as f64 * interval_s(rate.as_bps(), portion);
                self.phase = Phase::Series {
                    begin,
                    written,
                    elapsed_s,
                    end,
                };
                self.next = Some((begin + Span::from_secs(elapsed_s)).min(end));
                Some(Write::Message(portion.as_bytes()))
            }
            (Workload::ConstantRate { .. } | Workload::Replay(_), Phase::Ready) => {
                self.phase = series(at, Time::MAX);
                if let Workload::Replay(replay) = &self.workload {
                    self.next = Some(at + replay.writes()[0].0);
                }
                None
            }
            (
                Workload::ConstantRate {
                    rate,
                    portion,
                    arrivals,
                    ..
                },
                Phase::Series {
                    begin,
                    written,
                    elapsed_s,
                    end,
                },
            ) => {
                let (portion, interval_s) = (*portion, interval_s(rate.as_bps(), *portion));
                let written = written + 1;
                let elapsed_s = match arrivals {
                    // multiplied, not added up: an hour of probes does not drift
                    Arrivals::Periodic => written as f64 * interval_s,
                    Arrivals::Poisson => elapsed_s - libm::log(uniform(&mut self.rng)) * interval_s,
                };
                self.phase = Phase::Series {
                    begin,
                    written,
                    elapsed_s,
                    end,
                };
                self.next = Some(begin + Span::from_secs(elapsed_s));
                self.count();
                Some(Write::Message(portion.as_bytes()))
            }
            (
                Workload::Replay(replay),
                Phase::Series {
                    begin,
                    written,
                    elapsed_s,
                    end,
                },
            ) => {
                let writes = replay.writes();
                let (_, size) = writes[written as usize];
                let mut written = written + 1;
                let mut begin = begin;
                if written as usize == writes.len() {
                    if !replay.repeat {
                        self.finish();
                        return Some(Write::Message(size.as_bytes()));
                    }
                    written = 0;
                    begin += replay.period();
                }
                self.next = Some(begin + writes[written as usize].0);
                self.phase = Phase::Series {
                    begin,
                    written,
                    elapsed_s,
                    end,
                };
                Some(Write::Message(size.as_bytes()))
            }
            (Workload::ConstantRate { .. } | Workload::Replay(_), Phase::Greedy) => {
                unreachable!("these write portions")
            }
        }
    }

    /// The size of the answer to a request that has arrived; of request-response only.
    pub fn answer(&mut self) -> u64 {
        match self.workload {
            Workload::RequestResponse { response, .. } => self.bytes(response),
            _ => 0,
        }
    }

    /// A message has arrived whole at `now`: a transfer, or the answer to a request.
    pub fn on_delivered(&mut self, now: Time) {
        let pause = match &self.workload {
            Workload::Transfer { pause, .. } => *pause,
            Workload::RequestResponse { think, .. } => *think,
            _ => return,
        };
        if self.left > 0 {
            let next = now + self.span(pause);
            self.next = Some(next);
            if next >= self.stop {
                self.finish();
            }
        }
    }

    fn bytes(&mut self, size: Varying<Size>) -> u64 {
        let bytes = size.mean.as_bytes() as f64 * size.draw(&mut self.rng);
        (bytes.round() as u64).max(1)
    }

    fn span(&mut self, span: Varying<Span>) -> Span {
        Span::from_secs(span.mean.as_secs() * span.draw(&mut self.rng))
    }
}

const fn series(begin: Time, end: Time) -> Phase {
    Phase::Series {
        begin,
        written: 0,
        elapsed_s: 0.0,
        end,
    }
}

fn interval_s(rate_bps: f64, portion: Size) -> f64 {
    portion.as_bytes() as f64 * 8.0 / rate_bps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::varying::Shape;
    use crate::workload::Replay;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn size(bytes: u64) -> Size {
        Size::from_bytes(bytes).unwrap()
    }

    /// Milliseconds and writes up to `end`, without anything ever arriving.
    fn writes(source: &mut Source, end: Time) -> Vec<(u64, Write)> {
        let mut all = Vec::new();
        while let Some(next) = source.next_write().filter(|next| *next <= end) {
            while let Some(write) = source.write(next) {
                all.push((next.as_nanos() / 1_000_000, write));
            }
        }
        all
    }

    fn source(workload: &Workload, stop: Option<Time>) -> Source {
        Source::new(workload, at(100), stop, 1, 0)
    }

    #[test]
    fn bulk_goes_on_for_ever_or_until_it_is_stopped() {
        let mut bulk = source(&Workload::Bulk, None);
        assert_eq!(writes(&mut bulk, at(9000)), [(100, Write::Endless)]);
        assert!(!bulk.is_finished());
        let mut bulk = source(&Workload::Bulk, Some(at(700)));
        assert_eq!(
            writes(&mut bulk, at(9000)),
            [(100, Write::Endless), (700, Write::Stop)]
        );
        assert!(bulk.is_finished());
    }

    #[test]
    fn probes_come_at_their_rate_and_end_with_their_count() {
        let workload = |count, arrivals| Workload::ConstantRate {
            rate: "800 kbit/s".parse().unwrap(),
            portion: size(1000), // 10 ms
            arrivals,
            count,
        };
        let mut probes = source(&workload(Some(3), Arrivals::Periodic), None);
        let message = Write::Message(1000);
        assert_eq!(
            writes(&mut probes, at(9000)),
            [(100, message), (110, message), (120, message)]
        );
        assert!(probes.is_finished());
        let mut poisson = source(&workload(None, Arrivals::Poisson), Some(at(100_100)));
        let count = writes(&mut poisson, at(200_000)).len() as f64;
        assert!((count - 10_000.0).abs() < 400.0, "{count}"); // four standard deviations
    }

    #[test]
    fn on_off_sends_and_is_silent_in_turn() {
        let workload = |rate| Workload::OnOff {
            on: Varying::fixed(Span::from_millis(25)),
            off: Varying::fixed(Span::from_millis(75)),
            rate,
        };
        let rate = Some(("800 kbit/s".parse().unwrap(), size(1000)));
        let mut calls = source(&workload(rate), None);
        let moments: Vec<u64> = writes(&mut calls, at(230))
            .iter()
            .map(|(at, _)| *at)
            .collect();
        assert_eq!(moments, [100, 110, 120, 200, 210, 220]);
        let mut greedy = source(&workload(None), Some(at(210)));
        assert_eq!(
            writes(&mut greedy, at(900)),
            [
                (100, Write::Endless),
                (125, Write::Stop),
                (200, Write::Endless),
                (210, Write::Stop)
            ]
        );
        assert!(greedy.is_finished());
    }

    #[test]
    fn a_recording_is_played_once_or_again_and_again() {
        let frames = vec![(Span::ZERO, size(9)), (Span::from_millis(40), size(5))];
        let once = Workload::Replay(Replay::new(frames.clone(), false).unwrap());
        let mut once = source(&once, None);
        assert_eq!(
            writes(&mut once, at(900)),
            [(100, Write::Message(9)), (140, Write::Message(5))]
        );
        assert!(once.is_finished());
        let again = Workload::Replay(Replay::new(frames, true).unwrap());
        let mut again = source(&again, None);
        let moments: Vec<u64> = writes(&mut again, at(270))
            .iter()
            .map(|(at, _)| *at)
            .collect();
        assert_eq!(moments, [100, 140, 180, 220, 260]);
    }

    #[test]
    fn transfers_and_requests_wait_for_what_arrives() {
        let transfer = Workload::Transfer {
            size: Varying::fixed(size(5000)),
            pause: Varying::fixed(Span::from_millis(50)),
            count: Some(2),
        };
        let mut transfers = source(&transfer, None);
        assert_eq!(
            writes(&mut transfers, at(900)),
            [(100, Write::Message(5000))]
        );
        transfers.on_delivered(at(300));
        assert_eq!(
            writes(&mut transfers, at(900)),
            [(350, Write::Message(5000))]
        );
        assert!(transfers.is_finished());
        let asking = Workload::RequestResponse {
            request: Varying::fixed(size(100)),
            response: Varying {
                mean: size(10_000),
                shape: Shape::Exponential,
            },
            think: Varying::fixed(Span::from_millis(20)),
            count: None,
        };
        let mut asking = source(&asking, Some(at(500)));
        assert_eq!(writes(&mut asking, at(900)), [(100, Write::Message(100))]);
        assert_ne!(asking.answer(), asking.answer());
        asking.on_delivered(at(490));
        assert!(asking.is_finished() && asking.next_write().is_none());
    }
}
