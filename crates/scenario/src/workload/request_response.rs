//! Requests that the far end answers.

use pathcast_path::reader::{Field, Loader, Read, SIZE, TIME, Table};
use pathcast_path::{Size, Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::kind::{Kind, Next, Pace, Write, count_to_toml, read_count};
use crate::varying::Varying;

/// The far end answers requests; the next is asked some time after an answer is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestResponse {
    /// Of a request, which goes the other way than the data.
    pub request: Varying<Size>,
    /// Of an answer.
    pub response: Varying<Size>,
    /// From an answer to the next request.
    pub think: Varying<Span>,
    /// How many; none: no end of them.
    pub count: Option<u64>,
}

/// A small HTTP request with its headers.
const DEFAULT_REQUEST: Size = Size::from_bytes(400).expect("more than none");

impl Kind for RequestResponse {
    const NAME: &'static str = "request-response";
    const KEYS: &'static [&'static str] = &["request", "response", "think", "count"];
    type State = ();

    fn read(_: Field<'_, '_>, table: Table<'_, '_>, _: &mut Loader<'_>) -> Read<Self> {
        Ok(Self {
            request: table.or("request", Varying::fixed(DEFAULT_REQUEST), |field| {
                Varying::read(field, SIZE)
            })?,
            response: Varying::read(table.need("response")?, SIZE)?,
            think: table.or("think", Varying::fixed(Span::ZERO), |field| {
                Varying::read(field, TIME)
            })?,
            count: read_count(table)?,
        })
    }

    fn keys_to_toml(&self) -> String {
        format!(
            "request = {}, response = {}, think = {}{}",
            self.request.to_toml(),
            self.response.to_toml(),
            self.think.to_toml(),
            count_to_toml(self.count)
        )
    }

    fn pace(&self) -> Pace {
        Pace::Answers
    }

    fn count(&self) -> Option<u64> {
        self.count
    }

    fn step(&self, (): &mut (), _: Time, rng: &mut Xoshiro256PlusPlus) -> (Option<Write>, Next) {
        (Some(Write::Message(self.request.bytes(rng))), Next::Waits)
    }

    fn on_delivered(
        &self,
        (): &mut (),
        _: u64,
        now: Time,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<Next> {
        Some(Next::At(now + self.think.span(rng)))
    }

    fn answer(&self, (): &mut (), _: u64, rng: &mut Xoshiro256PlusPlus) -> u64 {
        self.response.bytes(rng)
    }
}
