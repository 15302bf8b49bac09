//! Answers to the four questions, as JSON.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pathcast_decide::decision::bitrate::{self, Ladder, LadderError};
use pathcast_decide::decision::http::{self, LoadTimes};
use pathcast_decide::decision::{session, transfer};
use pathcast_decide::path_state::BasisKind;
use pathcast_decide::{
    Asked, Basis, Client, Group, Kind, PathState, Quantiles, RateDistribution, SampleError, Waiting,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::app::App;
use crate::cmsd::{Advice, CmsdQuestion};
use crate::pages::{ClassPage, Kept};

/// A rate that players and servers ask about holds for seconds; an HTTP decision takes the one over so many.
const PAGE_HORIZON_S: f64 = 4.0;
/// Longest horizon, seconds.
const LONGEST_S: f64 = 3600.0;
/// Most bytes of a transfer.
const MOST_BYTES: u64 = 1 << 50;
/// The first question about a page and a path is answered by one load of each protocol; more follow.
const FIRST_LOADS: usize = 1;
/// An answer is rarely longer.
const ANSWER_BYTES: usize = 1400;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum AnswerError {
    /// The client is none.
    #[error(transparent)]
    Client(#[from] SampleError),
    /// The ladder is none.
    #[error(transparent)]
    Ladder(#[from] LadderError),
    /// A number out of range.
    #[error("{what} is {got}, expected {expected}")]
    Range {
        /// The parameter.
        what: &'static str,
        /// What was given.
        got: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// No page of this class.
    #[error("page is {0:?}, of which nothing is known; PUT /v1/pages/CLASS adds a page")]
    NoPage(String),
    /// The name of the server does not fit into a header.
    #[error("server is {0:?}, expected 1 to 64 characters of ASCII without quotes and backslashes")]
    Server(String),
    /// Neither the client nor any group is known.
    #[error("nothing is known of {0}, nor of any client; POST /v1/samples adds samples")]
    Unknown(String),
}

/// What a question about a page needs to be answered better, in the background.
#[derive(Debug)]
pub struct Refinement {
    page: Arc<ClassPage>,
    state: PathState,
    client: Client,
}

/// Parameters of `/v1/throughput`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThroughputQuestion {
    client: String,
    #[serde(default = "five")]
    horizon_s: f64,
}

/// Over what a bitrate must be carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// The next segment.
    #[default]
    Segment,
    /// Minutes: the mean.
    Session,
}

/// Parameters of `/v1/bitrate`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BitrateQuestion {
    pub(crate) client: String,
    #[serde(default = "four")]
    pub(crate) segment_s: f64,
    #[serde(default = "nine_tenths")]
    pub(crate) confidence: f64,
    pub(crate) ladder: Option<String>,
    #[serde(default)]
    pub(crate) over: Over,
}

/// Parameters of `/v1/transfer`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferQuestion {
    client: String,
    bytes: u64,
}

/// Parameters of `/v1/http`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpQuestion {
    client: String,
    page: String,
}

fn five() -> f64 {
    5.0
}

fn four() -> f64 {
    4.0
}

fn nine_tenths() -> f64 {
    0.9
}

/// An answer.
#[derive(Serialize)]
struct Answer<'a, T: Serialize> {
    decision: String,
    kind: &'a str,
    time_s: f64,
    client: &'a str,
    prefix: String,
    #[serde(flatten)]
    about: T,
    basis: BasisAnswer,
    features: Features,
    propensity: f64,
    /// Whether its outcome will be noted.
    scored: bool,
}

#[derive(Serialize)]
struct BasisAnswer {
    kind: BasisKind,
    name: String,
    /// Bits of a prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u8>,
    samples: usize,
    age_s: f64,
    assumed_rtt: bool,
}

#[derive(Serialize)]
struct Features {
    rate_bps: Option<f64>,
    rtt_s: Option<f64>,
    least_rtt_s: Option<f64>,
    loss: Option<f64>,
}

#[derive(Serialize)]
struct Throughput {
    horizon_s: f64,
    rate_bps: f64,
    quantiles_bps: Quantiles,
}

#[derive(Serialize)]
struct Bitrate {
    over: Over,
    segment_s: f64,
    confidence: f64,
    #[serde(flatten)]
    chosen: bitrate::Bitrate,
    quantiles_bps: Quantiles,
}

#[derive(Serialize)]
struct Transfer {
    bytes: u64,
    time_median_s: f64,
    quantiles_s: Quantiles,
}

#[derive(Serialize)]
struct HttpVersion<'a> {
    page: &'a str,
    protocol: &'a str,
    confidence: f64,
    loads: usize,
    load_times: &'a [LoadTimes],
}

/// A client that was asked about, and what is known of its path.
struct Known<'a> {
    /// As the question has it.
    text: &'a str,
    client: Client,
    asked: &'a Asked,
    state: &'a PathState,
}

impl<'a> Known<'a> {
    fn of(text: &'a str, client: Client, asked: &'a Asked, state: &'a PathState) -> Self {
        Self {
            text,
            client,
            asked,
            state,
        }
    }
}

/// A decision that is to be noted.
struct Decided {
    kind: Kind,
    band: [f64; 3],
    bound: Option<f64>,
    horizon_s: f64,
    propensity: f64,
}

fn in_range(
    what: &'static str,
    got: f64,
    range: (f64, f64),
    expected: &'static str,
) -> Result<f64, AnswerError> {
    match (range.0..=range.1).contains(&got) {
        true => Ok(got),
        false => Err(AnswerError::Range {
            what,
            got,
            expected,
        }),
    }
}

impl App {
    fn asked(&self, horizon_s: f64) -> Asked {
        Asked {
            now_s: self.clock.now_s(),
            window_s: self.config.window_s,
            horizon_s,
        }
    }

    fn state(
        &self,
        text: &str,
        client: Client,
        asked: &Asked,
        needs_rate: bool,
    ) -> Result<PathState, AnswerError> {
        let state = self.knowledge.path(client, asked, needs_rate);
        state.ok_or_else(|| {
            self.metrics.unknown.fetch_add(1, Relaxed);
            AnswerError::Unknown(text.chars().take(60).collect())
        })
    }

    /// The mean rate over a horizon.
    ///
    /// # Errors
    /// [`AnswerError`] if a parameter is invalid, or nothing is known.
    pub fn throughput(&self, question: &ThroughputQuestion) -> Result<Vec<u8>, AnswerError> {
        let client = Client::parse(&question.client)?;
        let horizon_s = in_range(
            "horizon_s",
            question.horizon_s,
            (0.1, LONGEST_S),
            "0.1 to 3600",
        )?;
        let asked = self.asked(horizon_s);
        let state = self.state(&question.client, client, &asked, true)?;
        let rates = state
            .rates_bps
            .ok_or_else(|| AnswerError::Unknown(question.client.clone()))?;
        let about = Throughput {
            horizon_s,
            rate_bps: rates.q50,
            quantiles_bps: rates,
        };
        let decided = Decided {
            kind: Kind::Throughput,
            band: rates.band(),
            bound: None,
            horizon_s,
            propensity: 1.0,
        };
        let known = Known::of(&question.client, client, &asked, &state);
        Ok(self.answer(&known, &decided, self.next_decision(), about))
    }

    /// The highest bitrate whose segment comes in time.
    ///
    /// # Errors
    /// [`AnswerError`] if a parameter is invalid, or nothing is known.
    pub fn bitrate(&self, question: &BitrateQuestion) -> Result<Vec<u8>, AnswerError> {
        self.bitrate_and_advice(question).map(|(answer, _)| answer)
    }

    /// The same, and the header by which a server passes it on to a player.
    ///
    /// # Errors
    /// [`AnswerError`] if a parameter is invalid, or nothing is known.
    pub fn cmsd(&self, question: CmsdQuestion) -> Result<(Vec<u8>, String), AnswerError> {
        let (server, question) = question.parts()?;
        let (answer, advice) = self.bitrate_and_advice(&question)?;
        Ok((answer, advice.header(&server)))
    }

    fn bitrate_and_advice(
        &self,
        question: &BitrateQuestion,
    ) -> Result<(Vec<u8>, Advice), AnswerError> {
        let client = Client::parse(&question.client)?;
        let segment_s = in_range(
            "segment_s",
            question.segment_s,
            (0.1, LONGEST_S),
            "0.1 to 3600",
        )?;
        let confidence = in_range(
            "confidence",
            question.confidence,
            (0.5, 0.99),
            "0.5 to 0.99",
        )?;
        let ladder = match &question.ladder {
            Some(text) => Ladder::parse(text)?,
            None => Ladder::Any,
        };
        let horizon_s = match question.over {
            Over::Segment => segment_s,
            Over::Session => session::HORIZON_S,
        };
        let asked = self.asked(horizon_s);
        let state = self.state(&question.client, client, &asked, true)?;
        let (rate, rates) = match question.over {
            Over::Segment => (state.rate, state.rates_bps),
            Over::Session => {
                let rate = self.session_rate(client, &state);
                (rate, rate.as_ref().map(Quantiles::from))
            }
        };
        let (Some(rate), Some(rates)) = (rate, rates) else {
            return Err(AnswerError::Unknown(question.client.clone()));
        };
        let chosen = bitrate::choose(&rate, state.request_s(), segment_s, confidence, &ladder);
        let decided = Decided {
            kind: Kind::Bitrate,
            band: rates.band(),
            bound: Some(chosen.needed_bps),
            horizon_s,
            propensity: 1.0,
        };
        let advice = Advice {
            rate_bps: rates.q50,
            most_bps: chosen.bitrate_bps,
            rtt_s: state.rtt_s,
        };
        let about = Bitrate {
            over: question.over,
            segment_s,
            confidence,
            chosen,
            quantiles_bps: rates,
        };
        let known = Known::of(&question.client, client, &asked, &state);
        let answer = self.answer(&known, &decided, self.next_decision(), about);
        Ok((answer, advice))
    }

    /// The mean rate over a long session; that of the state where the law gives none.
    fn session_rate(&self, client: Client, state: &PathState) -> Option<RateDistribution> {
        let own = match state.basis.group {
            None => self
                .knowledge
                .entry(client.prefix, |entry| entry.counts.clone()),
            Some(_) => None,
        };
        session::rate(state, own.as_ref(), self.cc).unwrap_or(state.rate)
    }

    /// The time of a transfer.
    ///
    /// # Errors
    /// [`AnswerError`] if a parameter is invalid, or nothing is known.
    pub fn transfer(&self, question: &TransferQuestion) -> Result<Vec<u8>, AnswerError> {
        let client = Client::parse(&question.client)?;
        let bytes = question.bytes;
        in_range("bytes", bytes as f64, (1.0, MOST_BYTES as f64), "1 to 2^50")?;
        let first = self.state(&question.client, client, &self.asked(PAGE_HORIZON_S), false)?;
        let horizon_s = transfer::about_s(&first, bytes);
        let asked = self.asked(horizon_s);
        let mut state = self.state(&question.client, client, &asked, false)?;
        state.rtt_or_assumed();
        let lossy = transfer::key(&state, bytes).and_then(|key| {
            self.times_with_losses(key, || transfer::with_losses(&state, bytes, self.cc).ok())
        });
        let times = transfer::times(&state, bytes, lossy);
        let decided = Decided {
            kind: Kind::Transfer,
            band: times.band(),
            bound: None,
            horizon_s,
            propensity: 1.0,
        };
        let about = Transfer {
            bytes,
            time_median_s: times.q50,
            quantiles_s: times,
        };
        let known = Known::of(&question.client, client, &asked, &state);
        Ok(self.answer(&known, &decided, self.next_decision(), about))
    }

    /// The version of HTTP for a page; and what is to be computed for later answers, if this one rests on little.
    ///
    /// # Errors
    /// [`AnswerError`] if a parameter is invalid, or nothing is known.
    pub fn http(
        &self,
        question: &HttpQuestion,
    ) -> Result<(Vec<u8>, Option<Refinement>), AnswerError> {
        let client = Client::parse(&question.client)?;
        let page = self.pages.get(&question.page);
        let page =
            page.ok_or_else(|| AnswerError::NoPage(question.page.chars().take(64).collect()))?;
        let asked = self.asked(PAGE_HORIZON_S);
        let mut state = self.state(&question.client, client, &asked, false)?;
        state.rtt_or_assumed();
        let (kept, refinement) = match self.pages.kept(&page, http::key(&state)) {
            Some(kept) => {
                self.metrics.cached.fetch_add(1, Relaxed);
                (kept, None)
            }
            None => {
                let refinement = Refinement {
                    page,
                    state,
                    client,
                };
                (self.load(&refinement, FIRST_LOADS), Some(refinement))
            }
        };
        let id = self.next_decision();
        let (protocol, propensity) = http::explore(&kept.choice, self.config.explore, id);
        let times = kept
            .choice
            .load_times
            .iter()
            .find(|one| one.protocol == protocol);
        let decided = Decided {
            kind: Kind::Http,
            band: times.map_or([0.0; 3], |one| one.quantiles_ms.band()),
            bound: None,
            horizon_s: PAGE_HORIZON_S,
            propensity,
        };
        let about = HttpVersion {
            page: &question.page,
            protocol,
            confidence: kept.choice.confidence,
            loads: kept.loads,
            load_times: &kept.choice.load_times,
        };
        let known = Known::of(&question.client, client, &asked, &state);
        let answer = self.answer(&known, &decided, id, about);
        Ok((answer, refinement))
    }

    /// Loads a page so many times by each protocol, and keeps the answer.
    fn load(&self, asked: &Refinement, loads: usize) -> Kept {
        self.metrics.computed.fetch_add(1, Relaxed);
        let own = match asked.state.basis.group {
            None => self
                .knowledge
                .entry(asked.client.prefix, |entry| entry.counts.points()),
            Some(_) => None,
        };
        let curve = own.flatten().unwrap_or_else(|| asked.state.flat_curve());
        let (page, state) = (&asked.page.page, &asked.state);
        let choice = http::choose(
            page,
            state,
            &curve,
            &self.protocols,
            &self.config.scheme,
            loads,
        );
        let kept = Kept {
            choice: Arc::new(choice),
            loads,
        };
        self.pages.keep(&asked.page, http::key(state), kept.clone());
        kept
    }

    /// Computes what later answers rest on.
    pub fn refine(&self, asked: &Refinement) {
        self.load(asked, self.config.loads);
    }

    /// Notes and logs a decision, and returns its answer.
    fn answer<T: Serialize>(
        &self,
        known: &Known<'_>,
        decided: &Decided,
        id: u64,
        about: T,
    ) -> Vec<u8> {
        let &Known {
            text,
            client,
            asked,
            state,
        } = known;
        let now_s = asked.now_s;
        let waiting = Waiting {
            id,
            kind: decided.kind,
            client: client.number,
            made_s: now_s,
            until_s: Self::until_s(decided.kind, now_s, decided.horizon_s),
            band: decided.band,
            bound: decided.bound,
            seen: (0.0, 0),
        };
        let scored = self.knowledge.wait(client.prefix, waiting, now_s);
        self.metrics.decide(decided.kind, state.basis.kind());
        let answer = Answer {
            decision: format!("{id:016x}"),
            kind: decided.kind.name(),
            time_s: now_s,
            client: text,
            prefix: client.prefix.to_string(),
            about,
            basis: self.basis(client, &state.basis),
            features: Features {
                rate_bps: state.rates_bps.map(|rates| rates.q50),
                rtt_s: state.rtt_s,
                least_rtt_s: state.least_rtt_s,
                loss: state.loss,
            },
            propensity: decided.propensity,
            scored,
        };
        let mut line = Vec::with_capacity(ANSWER_BYTES);
        // a structure of numbers and texts can be written
        let _ = serde_json::to_writer(&mut line, &answer);
        self.log_decision(&line, now_s);
        line
    }

    fn basis(&self, client: Client, basis: &Basis) -> BasisAnswer {
        let (name, length) = match basis.group {
            None => (client.prefix.to_string(), Some(client.prefix.length())),
            Some(Group::Prefix(prefix)) => (prefix.to_string(), Some(prefix.length())),
            Some(Group::Network(number) | Group::Region(number)) => {
                (self.knowledge.networks().name(number).to_string(), None)
            }
            Some(Group::All) => ("all".into(), None),
        };
        BasisAnswer {
            kind: basis.kind(),
            name,
            length,
            samples: basis.samples,
            age_s: basis.age_s,
            assumed_rtt: basis.assumed_rtt,
        }
    }
}
