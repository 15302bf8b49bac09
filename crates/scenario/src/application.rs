//! The application of a flow at both its ends: what it writes when, which messages have arrived, and
//! when it is complete.
//!
//! It knows no sockets, packets or clocks. A backend asks it what to write, carries each [`Message`]
//! in its own way, and hands the message back when it is whole at the other end. Several messages may
//! be in flight, and may arrive in any order.

use pathcast_path::Time;
use pathcast_video::SessionReport;

use crate::scenario::FlowSpec;
use crate::source::Source;
use crate::workload::{Workload, Write};

/// An end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Sends the data.
    Source,
    /// Receives the data; sends requests, if the flow has any.
    Sink,
}

/// A message that one end writes to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who writes it: the sink writes requests.
    pub from: Side,
    /// From 0; a response has the number of its request.
    pub number: u64,
    /// Its size.
    pub bytes: u64,
    /// When its latency begins: that of a response with the request.
    pub clock: Time,
}

/// The application of one flow.
#[derive(Clone, Debug)]
pub struct Application {
    source: Source,
    /// Who writes by itself: the sink, if that asks for the data.
    acts: Side,
    greedy: bool,
    /// It looks at how far answers are, and the backend reports that.
    looks: bool,
    /// The request whose answer the last request gave up.
    given_up: Option<u64>,
    /// Messages written by the end that acts, responses to them, and messages or responses that arrived.
    written: u64,
    answered: u64,
    delivered: u64,
    completed: Option<Time>,
}

impl Application {
    /// The application of flow number `number`, which begins at `start`.
    pub fn new(spec: &FlowSpec, start: Time, seed: u64, number: u32) -> Self {
        let stop = spec.stop.map(|stop| Time::ZERO + stop);
        Self {
            source: Source::new(&spec.workload, start, stop, seed, number),
            acts: if spec.workload.asks() {
                Side::Sink
            } else {
                Side::Source
            },
            greedy: false,
            looks: false,
            given_up: None,
            written: 0,
            answered: 0,
            delivered: 0,
            completed: None,
        }
    }

    /// The same, where the backend tells it how far answers are, and cuts those that it gives up: see
    /// [`looks`](Self::looks) and [`take_given_up`](Self::take_given_up).
    #[must_use]
    pub fn watched(mut self, workload: &Workload) -> Self {
        self.looks = workload.looks();
        if self.looks {
            self.source.watch();
        }
        self
    }

    /// Whether [`on_progress`](Self::on_progress) is to be called when a part of an answer arrives.
    #[inline]
    pub const fn looks(&self) -> bool {
        self.looks
    }

    /// So many bytes of the answer to request `number`, which is not whole, have arrived at `now`.
    pub fn on_progress(&mut self, now: Time, number: u64, bytes: u64) {
        self.source.on_progress(now, number, bytes);
    }

    /// The request whose answer is to end with what was sent of it: the request that arrived last gave it up. None after the
    /// first time.
    pub const fn take_given_up(&mut self) -> Option<u64> {
        self.given_up.take()
    }

    /// When `write` is to be called next; none: not before something arrives, or never again.
    #[inline]
    pub const fn next_write(&self) -> Option<Time> {
        self.source.next_write()
    }

    /// What it does at `now`; call until none.
    #[inline]
    pub fn write(&mut self, now: Time) -> Option<Write<Message>> {
        Some(match self.source.write(now)? {
            Write::Message(bytes) => {
                self.written += 1;
                Write::Message(Message {
                    from: self.acts,
                    number: self.written - 1,
                    bytes,
                    clock: now,
                })
            }
            Write::Endless => {
                self.greedy = true;
                Write::Endless
            }
            Write::Stop => {
                self.greedy = false;
                Write::Stop
            }
        })
    }

    /// `message` has arrived whole at `now`: the response, if it is a request; the other end writes
    /// that immediately.
    #[inline]
    pub fn on_delivered(&mut self, now: Time, message: &Message) -> Option<Message> {
        if message.from == Side::Sink {
            return Some(self.respond(message));
        }
        self.delivered += 1;
        self.source.on_delivered(now, message.number);
        None
    }

    /// The response to `request`; for a backend whose requests say what to respond.
    pub fn respond(&mut self, request: &Message) -> Message {
        self.answered += 1;
        if self.looks {
            self.given_up = self.source.gives_up(request.number);
        }
        Message {
            from: Side::Source,
            bytes: self.source.answer(request.number),
            ..*request
        }
    }

    /// Notes that it is complete at `now`, if it writes no more and all that it wrote `is_carried`; true
    /// the first time.
    #[inline]
    pub fn complete(&mut self, now: Time, is_carried: bool) -> bool {
        let completes = is_carried && self.is_finished() && self.completed.is_none();
        if completes {
            self.completed = Some(now);
        }
        completes
    }

    /// Notes that the page of which it is a connection has come whole at `now`.
    pub const fn end(&mut self, now: Time) {
        self.completed = Some(now);
    }

    /// Whether it writes no more by itself, whatever arrives.
    #[inline]
    pub const fn is_finished(&self) -> bool {
        self.source.is_finished()
    }

    /// Whether it writes as much as is taken now.
    #[inline]
    pub const fn is_greedy(&self) -> bool {
        self.greedy
    }

    /// Whether a message, or the response to one, has not arrived whole.
    #[inline]
    pub const fn is_waiting(&self) -> bool {
        self.delivered < self.written
    }

    /// When all that it ever writes was carried.
    pub const fn completed(&self) -> Option<Time> {
        self.completed
    }

    /// Messages written by the end that acts, and how many of them, or of the responses to them, have
    /// arrived.
    pub const fn counts(&self) -> (u64, u64) {
        (self.written, self.delivered)
    }

    /// How the session of a video went so far; none of another workload, or before its first request.
    pub fn video(&self) -> Option<SessionReport> {
        self.source.video()
    }

    /// Requests that have arrived.
    pub const fn answered(&self) -> u64 {
        self.answered
    }
}

#[cfg(test)]
mod tests {
    use pathcast_path::Span;

    use super::*;
    use crate::transport::Transport;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn application(workload: &str) -> Application {
        let spec = FlowSpec {
            workload: Workload::of_value(workload).unwrap(),
            ..FlowSpec::bulk(Transport::by_scheme("reno"))
        };
        Application::new(&spec, at(10), 1, 0)
    }

    fn messages(application: &mut Application, now: Time) -> Vec<Message> {
        let writes = std::iter::from_fn(|| application.write(now));
        let message = |write| match write {
            Write::Message(message) => message,
            Write::Endless | Write::Stop => panic!("{write:?}"),
        };
        writes.map(message).collect()
    }

    #[test]
    fn the_latency_of_a_response_begins_with_its_request() {
        let workload =
            "{ kind = 'request-response', response = '9 kB', think = '5 ms', count = 2 }";
        let mut asking = application(workload);
        for (sent, responded, arrived) in [(10, 40, 70), (75, 90, 99)] {
            assert_eq!(asking.next_write(), Some(at(sent)));
            let [request] = messages(&mut asking, at(sent))[..] else {
                panic!("one request");
            };
            assert_eq!((request.from, request.bytes), (Side::Sink, 400));
            let response = asking.on_delivered(at(responded), &request).unwrap();
            assert!(!asking.complete(at(responded), !asking.is_waiting()));
            assert_eq!(
                (response.from, response.number, response.bytes),
                (Side::Source, request.number, 9000)
            );
            assert_eq!(response.clock, at(sent));
            assert_eq!(asking.on_delivered(at(arrived), &response), None);
        }
        assert!(asking.complete(at(99), !asking.is_waiting()));
        assert!(!asking.complete(at(100), true));
        assert_eq!(
            (asking.completed(), asking.counts()),
            (Some(at(99)), (2, 2))
        );
    }

    #[test]
    fn messages_in_flight_may_arrive_in_any_order() {
        let workload =
            "{ kind = 'replay', writes = [['0 s', '1 B'], ['0 s', '2 B'], ['0 s', '3 B']] }";
        let mut frames = application(workload);
        let sent = messages(&mut frames, at(10));
        assert_eq!(
            sent.iter().map(|sent| sent.number).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert!(frames.is_finished());
        for message in sent.iter().rev() {
            assert!(!frames.complete(at(20), !frames.is_waiting()));
            frames.on_delivered(at(20), message);
        }
        assert!(frames.complete(at(20), !frames.is_waiting()));
    }

    #[test]
    fn what_is_written_without_an_end_is_no_message() {
        let mut bursts = application("{ kind = 'on-off', on = '5 ms', off = '1 s' }");
        assert_eq!(bursts.write(at(10)), Some(Write::Endless));
        assert!(bursts.is_greedy() && !bursts.is_waiting());
        assert_eq!(bursts.write(at(15)), Some(Write::Stop));
        assert!(!bursts.is_greedy());
        assert_eq!(bursts.counts(), (0, 0));
    }
}
