//! How the pump waits for the next packet.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use pathcast_path::{Span, Time};
use pathcast_probe::realtime::AwakeProcessors;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::thread::{ClockId, clock_nanosleep_relative};
use rustix::time::Timespec;

/// How long to sleep between turns on a fast path that is busy; packets leave late by up to this.
const QUANTUM: Span = Span::from_nanos(50_000);

/// A fast path is busy from this many turns with work within [`QUIET`] on, until there was none for so long.
const BUSY_TURNS: u32 = 40;
const QUIET: Span = Span::from_millis(1);

/// Never sleep longer, so that a stop is seen.
const LONGEST_SLEEP: Span = Span::from_millis(20);

/// On a quiet path, the pump wakes this long before a packet is due, and polls for as long after each packet
/// for its answer: timers and other processors wake a virtual one 10 to 50 us late.
const POLL: Span = Span::from_nanos(60_000);

/// Sleeps that are shorter end when the packet is due: on a busy path, polling would take a whole processor.
const LEAST_SLEEP_TO_POLL: Span = Span::from_nanos(5 * POLL.as_nanos());

/// The thread may poll for one part in `POLL_SHARE` of the time, and for a limited time without a pause.
/// The kernel stops a real-time thread that never sleeps for 50 ms in each second.
const POLL_SHARE: u64 = 10;
const LONGEST_POLL: Span = Span::from_millis(1);

/// Idle processors are kept awake until no packet came or left for so long.
const AWAKE: Span = Span::from_millis(1000);

/// Waits for packets from devices, or for packets that are due.
pub(crate) struct Waiting {
    epoll: OwnedFd,
    plan: Plan,
    awake: Option<AwakeProcessors>,
}

impl Waiting {
    /// For packets from `devices`; on a `fast` path that is busy not for each of them.
    pub(crate) fn new<'d>(
        devices: impl IntoIterator<Item = &'d (impl AsFd + 'd)>,
        fast: bool,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for device in devices {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&epoll, device, data, epoll::EventFlags::IN)?;
        }
        let plan = Plan::new(fast);
        Ok(Self {
            epoll,
            plan,
            awake: None,
        })
    }

    /// Time begins anew.
    pub(crate) fn restart(&mut self) {
        self.plan = Plan::new(self.plan.fast);
    }

    /// Waits until there may be something to do: the turn that ends `now` did `turn`, and the next packet is
    /// due at `next`.
    #[inline]
    pub(crate) fn wait(&mut self, now: Time, next: Option<Time>, turn: Turn) {
        match self.plan.next(now, next, turn) {
            Wait::Not => {}
            Wait::Quantum => {
                let _ = clock_nanosleep_relative(ClockId::Monotonic, &timespec(QUANTUM));
            }
            Wait::ForPackets(most) => {
                self.keep_awake(now);
                let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 2];
                // interrupted or not, the next turn looks at everything
                let _ = epoll::wait(&self.epoll, &mut events[..], Some(&timespec(most)));
            }
        }
    }

    /// Keeps idle processors awake while packets come and go.
    fn keep_awake(&mut self, now: Time) {
        let in_use = now.since(self.plan.worked) < AWAKE;
        if in_use != self.awake.is_some() {
            self.awake = in_use.then(AwakeProcessors::ask);
        }
    }
}

pub(crate) fn timespec(span: Span) -> Timespec {
    let nanos = span.as_nanos();
    Timespec {
        tv_sec: (nanos / 1_000_000_000) as i64,
        tv_nsec: (nanos % 1_000_000_000) as _,
    }
}

/// What the pump did in a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// It took packets from devices, or gave them some.
    pub(crate) worked: bool,
    /// It gave devices packets, which may be answered soon.
    pub(crate) gave: bool,
}

/// What to do until the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Nothing: the next turn looks whether there is something to do.
    Not,
    /// Sleep for [`QUANTUM`], whatever comes.
    Quantum,
    /// Sleep until a packet comes, at most for this long.
    ForPackets(Span),
}

/// Decides how to wait. Owns no clock.
struct Plan {
    fast: bool,
    /// When the last turn ended, and the last one that worked.
    ended: Time,
    worked: Time,
    /// Turns that worked since the path was quiet, at most since [`QUIET`] before; whether they are many.
    turns: u32,
    counted_from: Time,
    busy: bool,
    /// Whether a packet is awaited that was not due for long.
    approaching: bool,
    /// Until when an answer is awaited.
    answer_until: Time,
    /// Whether the last turn was followed by another without sleep, and how long that may continue.
    polled: bool,
    may_poll: Span,
}

impl Plan {
    const fn new(fast: bool) -> Self {
        Self {
            fast,
            ended: Time::ZERO,
            worked: Time::ZERO,
            turns: 0,
            counted_from: Time::ZERO,
            busy: false,
            approaching: false,
            answer_until: Time::ZERO,
            polled: false,
            may_poll: LONGEST_POLL,
        }
    }

    #[inline]
    fn next(&mut self, now: Time, next: Option<Time>, turn: Turn) -> Wait {
        self.count(now, turn);
        if self.busy && (turn.worked || next.is_some()) {
            return Wait::Quantum;
        }
        let due_in = next.map(|next| next.since(now));
        if due_in == Some(Span::ZERO) {
            return Wait::Not;
        }
        let may_poll = self.may_poll >= POLL;
        let far = due_in.is_some_and(|due_in| due_in >= LEAST_SLEEP_TO_POLL);
        self.approaching = may_poll && (far || (self.approaching && due_in.is_some()));
        let near = self.approaching && due_in.is_some_and(|due_in| due_in <= POLL);
        if near || (may_poll && now < self.answer_until) {
            self.polled = true;
            return Wait::Not;
        }
        let until = due_in.unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP);
        let early = if self.approaching { POLL } else { Span::ZERO };
        Wait::ForPackets(Span::from_nanos(until.as_nanos() - early.as_nanos()))
    }

    /// Takes account of the turn that ends `now`.
    #[inline]
    fn count(&mut self, now: Time, turn: Turn) {
        let since = now.since(self.ended);
        let earned = Span::from_nanos(since.as_nanos() / POLL_SHARE);
        let spent = if self.polled { since } else { Span::ZERO };
        let left = (self.may_poll + earned).as_nanos();
        let left = Span::from_nanos(left.saturating_sub(spent.as_nanos()));
        self.may_poll = left.min(LONGEST_POLL);
        (self.polled, self.ended) = (false, now);

        let pause = now.since(self.worked);
        if pause >= QUIET {
            (self.busy, self.turns) = (false, 0);
        }
        if !turn.worked {
            return;
        }
        if now.since(self.counted_from) >= QUIET {
            (self.turns, self.counted_from) = (0, now);
        }
        self.turns += 1;
        self.busy |= self.fast && self.turns >= BUSY_TURNS;
        self.approaching = false;
        self.answer_until = match turn.gave && pause >= LEAST_SLEEP_TO_POLL {
            true => now + POLL,
            false => Time::ZERO,
        };
        self.worked = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Turn = Turn {
        worked: false,
        gave: false,
    };
    const TOOK: Turn = Turn {
        worked: true,
        gave: false,
    };
    const GAVE: Turn = Turn {
        worked: true,
        gave: true,
    };

    const fn at(us: u64) -> Time {
        Time::from_nanos(us * 1000)
    }

    const fn sleep(us: u64) -> Wait {
        Wait::ForPackets(Span::from_nanos(us * 1000))
    }

    #[test]
    fn on_a_quiet_path_it_wakes_before_a_packet_is_due_and_polls_for_the_answer() {
        let mut plan = Plan::new(false);
        assert_eq!(plan.next(at(5_000), None, IDLE), sleep(20_000));
        assert_eq!(plan.next(at(9_000), Some(at(19_000)), TOOK), sleep(9_940));
        assert_eq!(plan.next(at(18_950), Some(at(19_000)), IDLE), Wait::Not);
        assert_eq!(plan.next(at(18_999), Some(at(19_000)), IDLE), Wait::Not);
        assert_eq!(plan.next(at(19_002), None, GAVE), Wait::Not);
        assert_eq!(plan.next(at(19_050), None, IDLE), Wait::Not);
        assert_eq!(plan.next(at(19_062), None, IDLE), sleep(20_000));
        // what came in between
        let mut plan = Plan::new(false);
        assert_eq!(plan.next(at(9_000), Some(at(19_000)), TOOK), sleep(9_940));
        assert_eq!(plan.next(at(18_800), Some(at(19_000)), TOOK), sleep(200));
        assert_eq!(plan.next(at(19_001), Some(at(19_000)), IDLE), Wait::Not);
    }

    #[test]
    fn a_steady_flow_is_not_polled_for() {
        let mut plan = Plan::new(false);
        let mut polls = 0;
        for number in 0..1000 {
            let now = at(10_000 + 120 * number);
            polls +=
                u32::from(plan.next(now, Some(now + Span::from_nanos(120_000)), GAVE) == Wait::Not);
        }
        assert!(polls <= 1, "{polls}");
    }

    #[test]
    fn no_more_than_its_share_of_the_time_is_polled() {
        // a packet is due each 301 us, and a turn takes 1 us
        let (mut plan, mut now, mut polled) = (Plan::new(false), at(10_000), 0);
        let (mut due, begin) = (at(10_301), now);
        while now < at(2_000_000) {
            let gave = due <= now;
            if gave {
                due = now + Span::from_nanos(301_000);
            }
            let turn = if gave { GAVE } else { IDLE };
            let waited = match plan.next(now, Some(due), turn) {
                Wait::ForPackets(most) => most,
                _ => {
                    polled += 1_000;
                    Span::from_nanos(1_000)
                }
            };
            now += waited;
        }
        let share = polled as f64 / now.since(begin).as_nanos() as f64;
        assert!((0.05..0.102).contains(&share), "{share}");
    }

    #[test]
    fn a_fast_path_is_slept_through_while_it_is_busy_alone() {
        let mut plan = Plan::new(true);
        let busy: Vec<Wait> = (0..60)
            .map(|number| plan.next(at(10_000 + 20 * number), Some(at(50_000)), TOOK))
            .collect();
        assert!(busy[..39].iter().all(|wait| *wait != Wait::Quantum));
        assert!(busy[40..].iter().all(|wait| *wait == Wait::Quantum));
        assert_eq!(plan.next(at(12_000), Some(at(50_000)), IDLE), Wait::Quantum);
        assert_ne!(plan.next(at(13_000), Some(at(50_000)), IDLE), Wait::Quantum);
        assert_ne!(plan.next(at(13_050), Some(at(50_000)), TOOK), Wait::Quantum);
    }
}
