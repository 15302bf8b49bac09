//! A kind of workload: what a scenario file says of it, and what its application does.

use std::fmt::Debug;

use pathcast_path::reader::{Field, Loader, Read, Table};
use pathcast_path::{Size, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

/// What an application does at some moment; `M` is a message, here its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<M = u64> {
    /// It writes a message.
    Message(M),
    /// From now on it writes as much as the transport accepts.
    Endless,
    /// It discards what has not been sent yet.
    Stop,
}

/// What the writes of an application depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// On what the transport accepts: the application writes no messages, but as much as the transport accepts.
    Greedy,
    /// On the time alone, so that it needs no transport that answers.
    Open,
    /// On the arrival of its messages.
    Arrivals,
    /// On answers: its messages are requests, each of which the far end answers.
    Answers,
}

/// When an application acts next.
#[derive(Clone, Copy)]
pub(crate) enum Next {
    At(Time),
    /// When something has arrived, or when it is stopped.
    Waits,
    /// It writes no more, whatever arrives.
    Finished,
}

/// The parameters of a kind of workload: how they are read and written, and how an application with them
/// behaves. Several of its messages may be in transit.
pub(crate) trait Kind: Sized {
    /// Its name in a scenario file.
    const NAME: &'static str;
    /// Its keys in addition to `kind`.
    const KEYS: &'static [&'static str];
    /// Where an application stands; the default is before its first step.
    type State: Clone + Debug + Default;

    /// Reads `table`, the value of `field`.
    fn read(field: Field<'_, '_>, table: Table<'_, '_>, load: &mut Loader<'_>) -> Read<Self>;

    /// All keys except `kind`, with their values.
    fn keys_to_toml(&self) -> String;

    fn pace(&self) -> Pace;

    /// The size of its largest write, if that does not depend on random draws.
    fn largest_write(&self) -> Option<Size> {
        None
    }

    /// Messages after which it is finished.
    fn count(&self) -> Option<u64> {
        None
    }

    /// One step at its moment `at`, and when the next one is due, which may be the same moment.
    fn step(
        &self,
        state: &mut Self::State,
        at: Time,
        rng: &mut Xoshiro256PlusPlus,
    ) -> (Option<Write>, Next);

    /// Message number `message`, or the answer to it, has arrived at `now`: when it acts next, if that
    /// changes by it.
    fn on_delivered(
        &self,
        _state: &mut Self::State,
        _message: u64,
        _now: Time,
        _rng: &mut Xoshiro256PlusPlus,
    ) -> Option<Next> {
        None
    }

    /// From now on the backend reports how far answers are.
    fn watch(&self, _state: &mut Self::State) {}

    /// So many bytes of the answer to message number `request`, which is not whole, have arrived at `now`.
    fn on_progress(&self, _state: &mut Self::State, _now: Time, _request: u64, _bytes: u64) {}

    /// The request whose answer is given up by message number `request`, which has just arrived.
    fn gives_up(&self, _state: &mut Self::State, _request: u64) -> Option<u64> {
        None
    }

    /// The size of the answer to message number `request`.
    fn answer(
        &self,
        _state: &mut Self::State,
        _request: u64,
        _rng: &mut Xoshiro256PlusPlus,
    ) -> u64 {
        0
    }
}

/// The key `count` of a table.
pub(super) fn read_count(table: Table<'_, '_>) -> Read<Option<u64>> {
    let field = table.get("count");
    field.map(|field| field.whole(1, 1 << 53)).transpose()
}

/// The key `count`, if there is a count.
pub(super) fn count_to_toml(count: Option<u64>) -> String {
    count.map_or(String::new(), |count| format!(", count = {count}"))
}
