//! When the application of a flow writes how much.

use pathcast_path::Time;
use pathcast_path::seed::generator;
use pathcast_video::SessionReport;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::workload::{Behavior, Next, Workload, Write};

/// The workload of one flow as it runs, until its count or its time is over.
#[derive(Clone, Debug)]
pub struct Source {
    behavior: Behavior,
    rng: Xoshiro256PlusPlus,
    /// `Endless` was written, and not stopped.
    greedy: bool,
    /// When it acts next; none: not before something arrives, or never.
    next: Option<Time>,
    /// Messages that it may still begin.
    left: u64,
    stop: Time,
}

impl Source {
    /// That of flow number `flow`, which begins at `start` and begins nothing new from
    /// `stop` on.
    pub fn new(workload: &Workload, start: Time, stop: Option<Time>, seed: u64, flow: u32) -> Self {
        Self {
            behavior: Behavior::new(workload),
            rng: generator(seed, &format!("flow.{flow}.source")),
            greedy: false,
            next: Some(start),
            left: workload.count().unwrap_or(u64::MAX),
            stop: stop.unwrap_or(Time::MAX),
        }
    }

    /// When `write` is to be called next; none: not before something arrives, or never again.
    #[inline]
    pub const fn next_write(&self) -> Option<Time> {
        self.next
    }

    /// Whether it writes no more, whatever arrives. What it wrote may still be in transit.
    #[inline]
    pub const fn is_finished(&self) -> bool {
        self.left == 0
    }

    /// What it does at `now`; call until none.
    #[inline]
    pub fn write(&mut self, now: Time) -> Option<Write> {
        while let Some(at) = self.next.filter(|next| *next <= now) {
            if at >= self.stop {
                self.finish();
                return std::mem::take(&mut self.greedy).then_some(Write::Stop);
            }
            let (write, next) = self.behavior.step(at, &mut self.rng);
            self.set_next(next);
            match write {
                Some(Write::Message(_)) => {
                    self.left = self.left.saturating_sub(1);
                    if self.left == 0 {
                        self.finish();
                    }
                }
                Some(Write::Endless) => {
                    self.greedy = true;
                    let next = self.next.unwrap_or(Time::MAX).min(self.stop);
                    self.next = (next < Time::MAX).then_some(next);
                }
                Some(Write::Stop) => self.greedy = false,
                None => continue,
            }
            return write;
        }
        None
    }

    #[inline]
    fn set_next(&mut self, next: Next) {
        match next {
            Next::At(next) => self.next = Some(next),
            Next::Waits => self.next = None,
            Next::Finished => self.finish(),
        }
    }

    const fn finish(&mut self) {
        self.left = 0;
        self.next = None;
    }

    /// How the session of a video went so far.
    pub fn video(&self) -> Option<SessionReport> {
        self.behavior.video()
    }

    /// From now on the backend reports how far answers are.
    pub fn watch(&mut self) {
        self.behavior.watch();
    }

    /// So many bytes of the answer to message number `request`, which is not whole, have arrived at `now`.
    pub fn on_progress(&mut self, now: Time, request: u64, bytes: u64) {
        self.behavior.on_progress(now, request, bytes);
    }

    /// The request whose answer is given up by message number `request`, which has just arrived.
    pub fn gives_up(&mut self, request: u64) -> Option<u64> {
        self.behavior.gives_up(request)
    }

    /// The size of the answer to message number `request`.
    pub fn answer(&mut self, request: u64) -> u64 {
        self.behavior.answer(request, &mut self.rng)
    }

    /// Message number `message`, or the answer to it, has arrived whole at `now`.
    #[inline]
    pub fn on_delivered(&mut self, now: Time, message: u64) {
        let next = self.behavior.on_delivered(message, now, &mut self.rng);
        if self.left > 0
            && let Some(next) = next
        {
            self.set_next(next);
            if self.next.is_some_and(|next| next >= self.stop) {
                self.finish();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pathcast_path::{Size, Span};

    use super::*;
    use crate::varying::{Shape, Varying};
    use crate::workload::{Arrivals, Bulk, ConstantRate, OnOff, Replay, RequestResponse, Transfer};

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
        let mut bulk = source(&Workload::Bulk(Bulk), None);
        assert_eq!(writes(&mut bulk, at(9000)), [(100, Write::Endless)]);
        assert!(!bulk.is_finished());
        let mut bulk = source(&Workload::Bulk(Bulk), Some(at(700)));
        assert_eq!(
            writes(&mut bulk, at(9000)),
            [(100, Write::Endless), (700, Write::Stop)]
        );
        assert!(bulk.is_finished());
    }

    #[test]
    fn probes_come_at_their_rate_and_end_with_their_count() {
        let workload = |count, arrivals| {
            Workload::ConstantRate(ConstantRate {
                rate: "800 kbit/s".parse().unwrap(),
                portion: size(1000), // 10 ms
                arrivals,
                count,
            })
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
        let workload = |rate| {
            Workload::OnOff(OnOff {
                on: Varying::fixed(Span::from_millis(25)),
                off: Varying::fixed(Span::from_millis(75)),
                rate,
            })
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
        let transfer = Workload::Transfer(Transfer {
            size: Varying::fixed(size(5000)),
            pause: Varying::fixed(Span::from_millis(50)),
            count: Some(2),
        });
        let mut transfers = source(&transfer, None);
        assert_eq!(
            writes(&mut transfers, at(900)),
            [(100, Write::Message(5000))]
        );
        transfers.on_delivered(at(300), 0);
        assert_eq!(
            writes(&mut transfers, at(900)),
            [(350, Write::Message(5000))]
        );
        assert!(transfers.is_finished());
        let asking = Workload::RequestResponse(RequestResponse {
            request: Varying::fixed(size(100)),
            response: Varying {
                mean: size(10_000),
                shape: Shape::Exponential,
            },
            think: Varying::fixed(Span::from_millis(20)),
            count: None,
        });
        let mut asking = source(&asking, Some(at(500)));
        assert_eq!(writes(&mut asking, at(900)), [(100, Write::Message(100))]);
        assert_ne!(asking.answer(0), asking.answer(1));
        asking.on_delivered(at(490), 0);
        assert!(asking.is_finished() && asking.next_write().is_none());
    }
}
