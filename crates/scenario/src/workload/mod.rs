//! What the application of a flow writes, and when: kinds of workloads, one file each, with its keys
//! in the scenario file and what it does; `workloads!` lists them.

mod bulk;
mod constant_rate;
mod kind;
mod on_off;
mod portions;
mod replay;
mod request_response;
mod transfer;
mod video;
mod web_page;

pub use constant_rate::Arrivals;
pub use kind::Write;

pub(crate) use kind::Next;

use pathcast_path::reader::{Field, Loader, Read, Table, document};
use pathcast_path::{Size, Time};
use pathcast_video::SessionReport;
use rand_xoshiro::Xoshiro256PlusPlus;

use self::kind::{Kind, Pace};
use crate::transport::Transport;

/// What waits unsent at most in the socket of an application that writes as much as is taken; it writes
/// again when half of that has left (TCP_NOTSENT_LOWAT). When it stops, what waits is still sent.
pub const UNSENT_BYTES: u32 = 128 << 10;

/// Makes of the list of workloads what goes by it: [`Workload`], and [`Behavior`] with its calls.
macro_rules! workloads {
    ($($name:ident in $module:ident;)*) => {
        $(pub use $module::$name;)*

        /// What an application sends.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Workload {
            $(#[doc = concat!("See [`", stringify!($name), "`].")] $name($name),)*
        }

        impl Workload {
            /// The kinds of a scenario file, each with its keys.
            const KINDS: &[(&'static str, &[&str])] = &[$(($name::NAME, $name::KEYS)),*];

            fn read_kind(
                kind: &str,
                field: Field<'_, '_>,
                table: Table<'_, '_>,
                load: &mut Loader<'_>,
            ) -> Read<Self> {
                $(if kind == $name::NAME {
                    return Ok(Self::$name($name::read(field, table, load)?));
                })*
                unreachable!("the kind was checked")
            }

            /// Its name in a scenario file.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $name::NAME,)*
                }
            }

            fn keys_to_toml(&self) -> String {
                match self {
                    $(Self::$name(kind) => kind.keys_to_toml(),)*
                }
            }

            fn pace(&self) -> Pace {
                match self {
                    $(Self::$name(kind) => kind.pace(),)*
                }
            }

            /// The size of its largest write, if that does not depend on random draws.
            pub(crate) fn largest_write(&self) -> Option<Size> {
                match self {
                    $(Self::$name(kind) => kind.largest_write(),)*
                }
            }

            /// Messages after which it is finished.
            pub(crate) fn count(&self) -> Option<u64> {
                match self {
                    $(Self::$name(kind) => kind.count(),)*
                }
            }
        }

        /// What an application does by its workload, and where it stands: the calls of [`Kind`].
        #[derive(Clone, Debug)]
        pub(crate) enum Behavior {
            $($name($name, <$name as Kind>::State),)*
        }

        impl Behavior {
            pub(crate) fn new(workload: &Workload) -> Self {
                match workload {
                    $(Workload::$name(kind) => Self::$name(kind.clone(), Default::default()),)*
                }
            }

            #[inline]
            pub(crate) fn step(
                &mut self,
                at: Time,
                rng: &mut Xoshiro256PlusPlus,
            ) -> (Option<Write>, Next) {
                match self {
                    $(Self::$name(kind, state) => kind.step(state, at, rng),)*
                }
            }

            #[inline]
            pub(crate) fn on_delivered(
                &mut self,
                message: u64,
                now: Time,
                rng: &mut Xoshiro256PlusPlus,
            ) -> Option<Next> {
                match self {
                    $(Self::$name(kind, state) => kind.on_delivered(state, message, now, rng),)*
                }
            }

            pub(crate) fn watch(&mut self) {
                match self {
                    $(Self::$name(kind, state) => kind.watch(state),)*
                }
            }

            pub(crate) fn on_progress(&mut self, now: Time, request: u64, bytes: u64) {
                match self {
                    $(Self::$name(kind, state) => kind.on_progress(state, now, request, bytes),)*
                }
            }

            pub(crate) fn gives_up(&mut self, request: u64) -> Option<u64> {
                match self {
                    $(Self::$name(kind, state) => kind.gives_up(state, request),)*
                }
            }

            pub(crate) fn answer(&mut self, request: u64, rng: &mut Xoshiro256PlusPlus) -> u64 {
                match self {
                    $(Self::$name(kind, state) => kind.answer(state, request, rng),)*
                }
            }
        }
    };
}

workloads! {
    Bulk in bulk;
    Transfer in transfer;
    OnOff in on_off;
    ConstantRate in constant_rate;
    Replay in replay;
    RequestResponse in request_response;
    Video in video;
    WebPage in web_page;
}

impl Behavior {
    /// How the session of a video went so far.
    pub(crate) fn video(&self) -> Option<SessionReport> {
        match self {
            Self::Video(_, state) => state.report(),
            _ => None,
        }
    }
}

impl Workload {
    /// Whether it writes as much as the network takes, not messages.
    pub fn is_greedy(&self) -> bool {
        self.pace() == Pace::Greedy
    }

    /// Whether what it writes does not depend on what arrives, so that it needs no transport that
    /// answers.
    pub fn is_open_loop(&self) -> bool {
        self.pace() == Pace::Open
    }

    /// Whether it waits for its messages to arrive, which the far end need not answer.
    pub fn waits_for_arrivals(&self) -> bool {
        self.pace() == Pace::Arrivals
    }

    /// Whether the far end asks for the data: messages are requests, which go the other way.
    pub fn asks(&self) -> bool {
        self.pace() == Pace::Answers
    }

    /// Whether it looks at how far answers are, and may give them up.
    pub fn looks(&self) -> bool {
        matches!(self, Self::Video(video) if video.player().looks())
    }

    /// What may wait unsent in the server's socket (`TCP_NOTSENT_LOWAT`); none: as much as the kernel takes.
    pub fn unsent_bytes(&self) -> Option<u64> {
        match self {
            Self::Video(video) => video.unsent.map(Size::as_bytes),
            _ => None,
        }
    }

    /// Whether it is a page over HTTP, which a [`PageLoad`](crate::PageLoad) loads.
    pub const fn is_page(&self) -> bool {
        matches!(self, Self::WebPage(_))
    }

    /// Checks that a transport can carry it, if it is a page.
    pub(crate) fn check(&self, transport: &Transport) -> Result<(), String> {
        match self {
            Self::WebPage(page) => page.check(transport),
            _ => Ok(()),
        }
    }

    /// Connections of one flow of the scenario: more than one for a page over HTTP.
    pub fn connections(&self) -> u32 {
        match self {
            Self::WebPage(page) => page.connections(),
            _ => 1,
        }
    }

    /// The value of the key `workload`.
    pub(crate) fn read(field: Field<'_, '_>, load: &mut Loader<'_>) -> Read<Self> {
        if !field.is_table() {
            return match field.text("\"bulk\" or a table with `kind`")? {
                Bulk::NAME => Ok(Self::Bulk(Bulk)),
                other => field.wrong(format_args!(
                    "got {other:?}, expected \"bulk\" or a table with `kind`"
                )),
            };
        }
        let (kind, table) = field.kind(Self::KINDS)?;
        Self::read_kind(kind, field, table, load)
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
        // leave out the place, which would be in a generated file
        found.map_err(|error| {
            let message = error.message;
            let example = "{ kind = 'transfer', size = '5 MB' }";
            format!("got {text:?}, expected a TOML value such as \"{example}\": {message}")
        })
    }

    pub(crate) fn to_toml(&self) -> String {
        match (self.kind(), self.keys_to_toml()) {
            (kind, keys) if keys.is_empty() => format!("\"{kind}\""),
            (kind, keys) => format!("{{ kind = \"{kind}\", {keys} }}"),
        }
    }
}
