//! The words of tc commands, and the qdiscs that they name: netem, tbf and queues.

use pathcast_base::{Bandwidth, Probability, Span};

use super::quantity::{rate, share, size, time, whole};
use crate::delay::{DelaySpec, Distribution, Jitter};
use crate::loss::{GilbertElliott, LossSpec};
use crate::packet::FULL_PACKET_BYTES;
use crate::queue::QueueLimit;
use crate::queue::{CoDelSpec, Discipline, FqCoDelSpec, PieSpec, QueueSpec, RedSpec};

/// The queue of a device, where no other is given, in packets.
pub(super) const TX_QUEUE: u64 = 1000;
/// Of tbf's burst, what its own clock needs is no burst.
const TICKS_A_SECOND: f64 = 1000.0;

/// The words of a command that are still to be read.
pub(super) struct Words<'w> {
    pub(super) rest: &'w [String],
    /// What they are of, for errors.
    pub(super) of: String,
}

impl<'w> Words<'w> {
    pub(super) fn take(&mut self) -> Option<&'w str> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// The next word, if `is` likes it.
    pub(super) fn take_if(&mut self, is: impl Fn(&str) -> bool) -> Option<&'w str> {
        match self.rest.first() {
            Some(word) if is(word) => self.take(),
            _ => None,
        }
    }

    pub(super) fn skip(&mut self, word: &str) -> bool {
        self.take_if(|next| next == word).is_some()
    }

    /// The value of `key`.
    pub(super) fn value<T>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        let word = self.take();
        let word =
            word.ok_or_else(|| format!("{} {key}: got nothing, expected a value", self.of))?;
        parse(word).map_err(|why| format!("{} {key}: {why}", self.of))
    }
}

/// What netem does with packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Netem {
    pub(super) delay: Option<DelaySpec>,
    pub(super) loss: Option<LossSpec>,
    pub(super) rate: Option<Bandwidth>,
    pub(super) limit: Option<u64>,
}

pub(super) fn netem(words: &mut Words<'_>, left_out: &mut Vec<String>) -> Result<Netem, String> {
    let mut netem = Netem::default();
    // an optional number after another, such as a correlation
    let is_share = |word: &str| share(word).is_ok();
    while let Some(word) = words.take() {
        match word {
            "limit" => netem.limit = Some(words.value(word, whole)?),
            "rate" => {
                netem.rate = Some(words.value(word, rate)?);
                let is_number = |word: &str| word.parse::<i64>().is_ok();
                let further: Vec<&str> = std::iter::from_fn(|| words.take_if(is_number)).collect();
                if further.iter().any(|word| *word != "0") {
                    let further = further.join(" ");
                    left_out.push(format!(
                        "netem rate: overhead and cells of {further} left out"
                    ));
                }
            }
            "delay" | "latency" => netem.delay = Some(delay(words, left_out)?),
            "loss" | "drop" => netem.loss = Some(loss(words, left_out)?),
            "duplicate" | "corrupt" | "reorder" => {
                let probability = words.value(word, share)?;
                let _ = words.take_if(is_share);
                if probability > Probability::ZERO {
                    left_out.push(format!("netem {word}: a path has none; left out"));
                }
            }
            "gap" | "seed" => {
                words.value(word, whole)?;
                left_out.push(format!("netem {word}: left out"));
            }
            "ecn" => left_out.push("netem ecn: marks in place of losses left out".into()),
            "slot" => {
                let is_part = |word: &str| time(word).is_ok() || word == "distribution";
                while words.take_if(is_part).is_some() {}
                left_out
                    .push("netem slot: left out; `aggregation` of a path file is near it".into());
            }
            _ => {
                return Err(format!(
                    "netem: got {word:?}, expected delay, loss, rate, limit, duplicate, corrupt, reorder, gap, \
                     slot, ecn or seed"
                ));
            }
        }
    }
    Ok(netem)
}

fn delay(words: &mut Words<'_>, left_out: &mut Vec<String>) -> Result<DelaySpec, String> {
    let mean = words.value("delay", time)?;
    let Some(half) = words.take_if(|word| time(word).is_ok()) else {
        return Ok(DelaySpec::Fixed(mean));
    };
    let half = time(half)?;
    if words.take_if(|word| word.ends_with('%')).is_some() {
        left_out.push("netem delay: the correlation of its jitter left out".into());
    }
    if words.skip("distribution") {
        let name = words.value("distribution", |name| Ok(name.to_string()))?;
        if name != "uniform" {
            left_out.push(format!(
                "netem delay: the distribution {name} left out, its jitter is uniform here"
            ));
        }
    }
    if half.as_nanos() == 0 {
        return Ok(DelaySpec::Fixed(mean));
    }
    let Some(base) = mean.as_nanos().checked_sub(half.as_nanos()) else {
        return Err(format!(
            "netem delay: got a jitter of \"{half}\" around \"{mean}\", expected no delay below 0"
        ));
    };
    Ok(DelaySpec::Jitter(Jitter {
        base: Span::from_nanos(base),
        jitter: half + half,
        distribution: Distribution::Uniform,
        reorder: true,
    }))
}

fn loss(words: &mut Words<'_>, left_out: &mut Vec<String>) -> Result<LossSpec, String> {
    let is_share = |word: &str| share(word).is_ok();
    if words.skip("gemodel") {
        let p = words.value("loss gemodel", share)?;
        let mut further = || words.take_if(is_share).map(share).transpose();
        let (r, bad, good) = (further()?, further()?, further()?);
        let certain = |p: f64| Probability::new(p).expect("at most 1");
        return Ok(LossSpec::GilbertElliott(GilbertElliott {
            good_to_bad: p,
            // as netem has them where they are not given
            bad_to_good: r.unwrap_or(certain(1.0 - p.value())),
            loss_bad: bad.unwrap_or(certain(1.0)),
            loss_good: good.unwrap_or(Probability::ZERO),
        }));
    }
    if words.skip("state") {
        return Err(
            "netem loss: got the model `state` of four states, expected random or gemodel: a path file has no other"
                .into(),
        );
    }
    words.skip("random");
    let probability = words.value("loss", share)?;
    if words.take_if(is_share).is_some() {
        left_out.push("netem loss: its correlation left out; `gemodel` has bursts".into());
    }
    Ok(LossSpec::Iid(probability))
}

pub(super) fn tbf(
    words: &mut Words<'_>,
    left_out: &mut Vec<String>,
) -> Result<(Bandwidth, u64), String> {
    let (mut bandwidth, mut burst, mut limit, mut latency) = (None, None, None, None);
    while let Some(word) = words.take() {
        match word {
            "rate" => bandwidth = Some(words.value(word, rate)?),
            "burst" | "buffer" | "maxburst" => burst = Some(words.value(word, size)?),
            "limit" => limit = Some(words.value(word, size)?),
            "latency" => latency = Some(words.value(word, time)?),
            "peakrate" => {
                words.value(word, rate)?;
                left_out.push("tbf peakrate: left out".into());
            }
            "mtu" | "minburst" | "mpu" | "overhead" => {
                words.value(word, size)?;
                left_out.push(format!("tbf {word}: left out"));
            }
            _ => {
                return Err(format!(
                    "tbf: got {word:?}, expected rate, burst, limit or latency"
                ));
            }
        }
    }
    let (Some(bandwidth), Some(burst)) = (bandwidth, burst) else {
        return Err("tbf: expected rate and burst".into());
    };
    let bytes_a_second = bandwidth.as_bps() / 8.0;
    let tick = ((bytes_a_second / TICKS_A_SECOND) as u64).max(FULL_PACKET_BYTES + 40);
    if burst > tick {
        left_out.push(format!(
            "tbf burst: {burst} bytes at once after a silence left out"
        ));
    }
    let limit = match (limit, latency) {
        (Some(limit), None) => limit,
        // what waits for so long, and the burst
        (None, Some(latency)) => (bytes_a_second * latency.as_secs()) as u64 + burst,
        _ => return Err("tbf: expected either limit or latency".into()),
    };
    Ok((bandwidth, limit))
}

pub(super) fn queue(
    kind: &str,
    words: &mut Words<'_>,
    left_out: &mut Vec<String>,
) -> Result<QueueSpec, String> {
    let mut limit = None;
    let (mut codel, mut fq) = (CoDelSpec::default(), FqCoDelSpec::default());
    let mut pie = PieSpec::default();
    let mut red = RedSpec {
        thresholds: None,
        weight: None,
        gentle: false,
        ..RedSpec::classic()
    };
    let (mut min, mut max) = (None, None);
    while let Some(word) = words.take() {
        match (kind, word) {
            ("bfifo" | "red", "limit") => limit = Some(QueueLimit::Bytes(words.value(word, size)?)),
            ("pfifo" | "pfifo_head_drop" | "codel" | "fq_codel" | "pie", "limit") => {
                limit = Some(QueueLimit::Packets(words.value(word, whole)?));
            }
            ("codel", "target") => codel.target = words.value(word, time)?,
            ("codel", "interval") => codel.interval = words.value(word, time)?,
            ("codel", "ecn" | "noecn") => codel.ecn = word == "ecn",
            ("fq_codel", "target") => fq.codel.target = words.value(word, time)?,
            ("fq_codel", "interval") => fq.codel.interval = words.value(word, time)?,
            ("fq_codel", "ecn" | "noecn") => fq.codel.ecn = word == "ecn",
            ("fq_codel", "flows") => {
                fq.flows = words.value(word, whole)?.min(u32::MAX.into()) as u32;
            }
            ("fq_codel", "quantum") => {
                fq.quantum_bytes = words.value(word, size)?.min(u32::MAX.into()) as u32;
            }
            ("pie", "target") => pie.target = words.value(word, time)?,
            ("pie", "tupdate") => pie.update = words.value(word, time)?,
            // tc counts both in sixteenths
            ("pie", "alpha") => pie.alpha = words.value(word, whole)? as f64 / 16.0,
            ("pie", "beta") => pie.beta = words.value(word, whole)? as f64 / 16.0,
            ("pie", "ecn" | "noecn") => pie.ecn = word == "ecn",
            ("red", "min") => min = Some(QueueLimit::Bytes(words.value(word, size)?)),
            ("red", "max") => max = Some(QueueLimit::Bytes(words.value(word, size)?)),
            ("red", "probability") => {
                red.max_probability = words.value(word, |word| {
                    let parsed = word.parse().ok().and_then(Probability::new);
                    parsed.ok_or_else(|| format!("got {word:?}, expected 0 to 1"))
                })?;
            }
            ("red", "adaptive") => red.adaptive = true,
            ("red", "ecn") => red.ecn = true,
            ("red", "avpkt" | "burst" | "bandwidth") => {
                words.value(word, |word| Ok(word.len()))?;
                left_out.push(format!(
                    "red {word}: left out; the average's weight follows from the rate"
                ));
            }
            ("fq_codel", "memory_limit" | "ce_threshold" | "drop_batch") => {
                words.value(word, |word| Ok(word.len()))?;
                left_out.push(format!("{kind} {word}: left out"));
            }
            ("pfifo" | "bfifo" | "pfifo_head_drop" | "codel" | "fq_codel" | "pie" | "red", _) => {
                return Err(format!(
                    "{kind}: got {word:?}, expected its limit and parameters"
                ));
            }
            _ => break,
        }
    }
    let (default, discipline) = match kind {
        "pfifo" | "bfifo" => (TX_QUEUE, Discipline::DropTail),
        "pfifo_head_drop" => (TX_QUEUE, Discipline::DropHead),
        "codel" => (1000, Discipline::CoDel(codel)),
        "fq_codel" => (10_240, Discipline::FqCoDel(fq)),
        "pie" => (1000, Discipline::Pie(pie)),
        "red" => {
            red.thresholds = match (min, max) {
                (Some(min), Some(max)) => Some((min, max)),
                (None, None) => None,
                _ => return Err("red: expected both min and max".into()),
            };
            (TX_QUEUE, Discipline::Red(red))
        }
        _ => {
            return Err(format!(
                "got the qdisc {kind:?}, expected netem, tbf, htb, pfifo, bfifo, pfifo_head_drop, codel, fq_codel, \
                 pie or red"
            ));
        }
    };
    let limit = limit.unwrap_or(match kind {
        "bfifo" => QueueLimit::Bytes(default * FULL_PACKET_BYTES),
        _ => QueueLimit::Packets(default),
    });
    Ok(QueueSpec { limit, discipline })
}
