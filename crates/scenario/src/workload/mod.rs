//! What the application of a flow writes, and when.

mod replay;

pub use replay::Replay;

use pathcast_path::reader::{Field, Loader, RATE, Read, SIZE, TIME, Table, document};
use pathcast_path::{Bandwidth, Size, Span};

use crate::transport::DEFAULT_MSS_BYTES;
use crate::varying::Varying;

/// What waits unsent at most in the socket of an application that writes as much as is taken; it writes
/// again when half of that has left (TCP_NOTSENT_LOWAT). When it stops, what waits is still sent.
pub const UNSENT_BYTES: u32 = 128 << 10;

/// What an application sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// As much as the network takes, for ever.
    Bulk,
    /// One transfer after another over the same connection, each some time after the one before has
    /// arrived.
    Transfer {
        /// Of each.
        size: Varying<Size>,
        /// From the arrival of one to the beginning of the next.
        pause: Varying<Span>,
        /// How many; none: no end of them.
        count: Option<u64>,
    },
    /// Times of sending and times of silence, whatever the network does.
    OnOff {
        /// How long it sends.
        on: Varying<Span>,
        /// How long it is silent.
        off: Varying<Span>,
        /// At which rate and in which portions; none: as much as the network takes.
        rate: Option<(Bandwidth, Size)>,
    },
    /// A portion now and then, whatever the network does: a probe, a call, a game.
    ConstantRate {
        /// Payload bits a second, in the mean.
        rate: Bandwidth,
        /// Payload of each write.
        portion: Size,
        /// How writes lie in time.
        arrivals: Arrivals,
        /// How many writes; none: no end of them.
        count: Option<u64>,
    },
    /// Writes at given times, such as the frames of a recorded call or film.
    Replay(Replay),
    /// The far end answers requests; the next is asked some time after an answer is there.
    RequestResponse {
        /// Of a request, which goes the other way than the data.
        request: Varying<Size>,
        /// Of an answer.
        response: Varying<Size>,
        /// From an answer to the next request.
        think: Varying<Span>,
        /// How many; none: no end of them.
        count: Option<u64>,
    },
}

/// How the writes of a source of constant rate lie in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// One interval apart.
    Periodic,
    /// A Poisson process.
    Poisson,
}

impl Workload {
    /// Its name in a scenario file.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Transfer { .. } => "transfer",
            Self::OnOff { .. } => "on-off",
            Self::ConstantRate { .. } => "constant-rate",
            Self::Replay(_) => "replay",
            Self::RequestResponse { .. } => "request-response",
        }
    }

    /// Whether it writes as much as the network takes, not messages.
    pub const fn is_greedy(&self) -> bool {
        matches!(self, Self::Bulk | Self::OnOff { rate: None, .. })
    }

    /// The most bytes that it writes at once, if that is the same whatever it draws.
    pub fn largest_write(&self) -> Option<u64> {
        let size = match self {
            Self::OnOff { rate, .. } => rate.as_ref().map(|(_, portion)| *portion),
            Self::ConstantRate { portion, .. } => Some(*portion),
            Self::Replay(replay) => replay.writes().iter().map(|(_, size)| *size).max(),
            Self::Bulk | Self::Transfer { .. } | Self::RequestResponse { .. } => None,
        };
        size.map(Size::as_bytes)
    }

    /// Whether what it writes does not depend on what arrives, so that it needs no transport that
    /// answers.
    pub const fn is_open_loop(&self) -> bool {
        match self {
            Self::OnOff { rate, .. } => rate.is_some(),
            Self::ConstantRate { .. } | Self::Replay(_) => true,
            Self::Bulk | Self::Transfer { .. } | Self::RequestResponse { .. } => false,
        }
    }

    /// The value of the key `workload`.
    pub(crate) fn read(field: Field<'_, '_>, load: &mut Loader<'_>) -> Read<Self> {
        if field.as_table().is_none() {
            return match field.text("\"bulk\" or a table with `kind`")? {
                "bulk" => Ok(Self::Bulk),
                other => field.wrong(format_args!(
                    "got {other:?}, expected \"bulk\" or a table with `kind`"
                )),
            };
        }
        let (kind, table) = field.kind(&[
            ("bulk", &[]),
            ("transfer", &["size", "pause", "count"]),
            ("on-off", &["on", "off", "rate", "portion"]),
            ("constant-rate", &["rate", "portion", "arrivals", "count"]),
            ("replay", Replay::KEYS),
            (
                "request-response",
                &["request", "response", "think", "count"],
            ),
        ])?;
        let count = |default| match table.get("count") {
            None => Ok(default),
            Some(field) => field.whole(1, 1 << 53).map(Some),
        };
        let portion = || {
            let full = Size::from_bytes(u64::from(DEFAULT_MSS_BYTES)).expect("more than none");
            table.or("portion", full, |field| field.quantity(SIZE))
        };
        Ok(match kind {
            "bulk" => Self::Bulk,
            "transfer" => Self::Transfer {
                size: Varying::read(table.need("size")?, SIZE)?,
                pause: table.or("pause", Varying::fixed(Span::ZERO), |field| {
                    Varying::read(field, TIME)
                })?,
                count: if table.get("pause").is_some() {
                    count(None)?
                } else {
                    count(Some(1))?
                },
            },
            "on-off" => {
                let rate = match table.get("rate") {
                    Some(field) => Some((rate(field, portion()?)?, portion()?)),
                    None => match table.get("portion") {
                        Some(field) => return field.wrong("needs a `rate` beside it"),
                        None => None,
                    },
                };
                let (on, off) = (
                    Varying::read(table.need("on")?, TIME)?,
                    Varying::read(table.need("off")?, TIME)?,
                );
                if on.mean == Span::ZERO {
                    return table.need("on")?.wrong("expected more than no time");
                }
                Self::OnOff { on, off, rate }
            }
            "constant-rate" => Self::ConstantRate {
                rate: rate(table.need("rate")?, portion()?)?,
                portion: portion()?,
                arrivals: table.or("arrivals", Arrivals::Periodic, |field| {
                    match field.text("\"periodic\" or \"poisson\"")? {
                        "periodic" => Ok(Arrivals::Periodic),
                        "poisson" => Ok(Arrivals::Poisson),
                        other => field.wrong(format_args!(
                            "got {other:?}, expected \"periodic\" or \"poisson\""
                        )),
                    }
                })?,
                count: count(None)?,
            },
            "replay" => Self::Replay(Replay::read(field, table, load)?),
            _ => Self::RequestResponse {
                request: table.or("request", Varying::fixed(DEFAULT_REQUEST), |field| {
                    Varying::read(field, SIZE)
                })?,
                response: Varying::read(table.need("response")?, SIZE)?,
                think: table.or("think", Varying::fixed(Span::ZERO), |field| {
                    Varying::read(field, TIME)
                })?,
                count: count(None)?,
            },
        })
    }

    /// The workload of a TOML value by itself.
    pub(crate) fn of_value(text: &str) -> Result<Self, String> {
        // one value and nothing after it: a document of one key
        if text.contains(['\n', '\r']) {
            return Err("expected one line".into());
        }
        let found = document(&format!("workload = {text}"), "", |root| {
            let root = Table::new(root, 0, &["workload"])?;
            let mut load = |_: &str| Err("expected no file here".to_string());
            Self::read(root.need("workload")?, &mut load)
        });
        // the place would be one in a file that nobody wrote
        found.map_err(|error| {
            let message = error.message;
            let example = "{ kind = 'transfer', size = '5 MB' }";
            format!("got {text:?}, expected a TOML value such as \"{example}\": {message}")
        })
    }

    pub(crate) fn to_toml(&self) -> String {
        let counted =
            |count: &Option<u64>| count.map_or(String::new(), |n| format!(", count = {n}"));
        let rest = match self {
            Self::Bulk => return "\"bulk\"".into(),
            Self::Transfer { size, pause, count } => format!(
                "size = {}, pause = {}{}",
                size.to_toml(),
                pause.to_toml(),
                counted(count)
            ),
            Self::OnOff { on, off, rate } => {
                let rate = rate.map_or(String::new(), |(rate, portion)| {
                    format!(", rate = \"{rate}\", portion = \"{portion}\"")
                });
                format!("on = {}, off = {}{rate}", on.to_toml(), off.to_toml())
            }
            Self::ConstantRate {
                rate,
                portion,
                arrivals,
                count,
            } => {
                let arrivals = match arrivals {
                    Arrivals::Periodic => "periodic",
                    Arrivals::Poisson => "poisson",
                };
                let count = counted(count);
                format!(
                    "rate = \"{rate}\", portion = \"{portion}\", arrivals = \"{arrivals}\"{count}"
                )
            }
            Self::Replay(replay) => replay.keys_to_toml(),
            Self::RequestResponse {
                request,
                response,
                think,
                count,
            } => format!(
                "request = {}, response = {}, think = {}{}",
                request.to_toml(),
                response.to_toml(),
                think.to_toml(),
                counted(count)
            ),
        };
        format!("{{ kind = \"{}\", {rest} }}", self.kind())
    }
}

/// A small HTTP request with its headers.
const DEFAULT_REQUEST: Size = Size::from_bytes(400).expect("more than none");

/// A rate at which portions can be told apart: at most one each 10 ns.
fn rate(field: Field<'_, '_>, portion: Size) -> Read<Bandwidth> {
    let rate: Bandwidth = field.quantity(RATE)?;
    if portion.as_bytes() as f64 * 8.0 / rate.as_bps() < 1e-8 {
        return field.wrong(format_args!(
            "got {rate} in portions of {portion}: too many a second"
        ));
    }
    Ok(rate)
}
