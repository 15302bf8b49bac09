//! Rules that look at the buffer.

use super::Seen;
use super::throughput::Throughput;
use crate::ladder::Ladder;
use crate::player::PlayerOptions;

/// See [`Rule::Bola`](super::Rule::Bola): BOLA-BASIC of Spiteri, Urgaonkar and Sitaraman (INFOCOM 2016). Version m has the
/// utility ln(bitrate_m / bitrate_0) + 1, and the choice maximizes (V (utility + gamma p) - buffer) / bitrate. V and gamma p
/// follow from two buffers, as in dash.js: up to 10 s the lowest version is best, from the target on the highest. Until a
/// segment is there it goes by the throughput.
#[derive(Clone, Debug)]
pub(crate) struct Bola {
    utilities: Vec<f64>,
    v: f64,
    gp: f64,
    throughput: Throughput,
}

/// Up to so much in the buffer the lowest version is best, in seconds; the target is above by at least so much for each
/// version.
const LOW_S: f64 = 10.0;
const FOR_EACH_S: f64 = 2.0;

impl Bola {
    pub(super) fn new(ladder: &Ladder, options: &PlayerOptions) -> Self {
        let bitrates = ladder.bitrates_bps();
        let utilities: Vec<f64> = bitrates
            .iter()
            .map(|bitrate| libm::log(bitrate / bitrates[0]) + 1.0)
            .collect();
        let highest = utilities[utilities.len() - 1];
        let target_s =
            (options.buffer_s - ladder.segment_s()).max(LOW_S + FOR_EACH_S * bitrates.len() as f64);
        let gp = (highest - 1.0) / (target_s / LOW_S - 1.0);
        Self {
            utilities,
            // one version alone has no gain
            v: if gp > 0.0 { LOW_S / gp } else { 0.0 },
            gp,
            throughput: Throughput::default(),
        }
    }

    /// The best version by the buffer alone.
    fn by_buffer(&self, seen: &Seen<'_>) -> usize {
        let score = |version: usize| {
            let gain = self.v * (self.utilities[version] + self.gp) - seen.buffer_s;
            gain / seen.ladder.bitrates_bps()[version]
        };
        let versions = 0..self.utilities.len();
        versions
            .max_by(|a, b| score(*a).total_cmp(&score(*b)))
            .unwrap_or(0)
    }

    pub(super) fn choose(&self, seen: &Seen<'_>) -> usize {
        if seen.buffer_s < seen.ladder.segment_s() {
            return self.throughput.choose(seen);
        }
        self.by_buffer(seen)
    }

    pub(super) fn learn(&mut self, seconds: f64, bits: f64) {
        self.throughput.learn(seconds, bits);
    }
}

/// See [`Rule::Dynamic`](super::Rule::Dynamic). BOLA takes over with a full buffer if it chooses no less, and hands back with
/// half of it if it chooses less.
#[derive(Clone, Debug)]
pub(crate) struct Dynamic {
    bola: Bola,
    by_buffer: bool,
}

/// dash.js's default buffer, in seconds; a smaller one of the player counts instead.
const STABLE_S: f64 = 18.0;

impl Dynamic {
    pub(super) fn new(ladder: &Ladder, options: &PlayerOptions) -> Self {
        Self {
            bola: Bola::new(ladder, options),
            by_buffer: false,
        }
    }

    pub(super) fn choose(&mut self, seen: &Seen<'_>) -> usize {
        let by_rate = self.bola.throughput.choose(seen);
        let by_buffer = self.bola.by_buffer(seen);
        let stable_s = STABLE_S.min(seen.options.buffer_s - seen.ladder.segment_s());
        if self.by_buffer {
            self.by_buffer = seen.buffer_s >= stable_s / 2.0 || by_buffer >= by_rate;
        } else {
            self.by_buffer = seen.buffer_s >= stable_s && by_buffer >= by_rate;
        }
        if self.by_buffer { by_buffer } else { by_rate }
    }

    pub(super) fn learn(&mut self, seconds: f64, bits: f64) {
        self.bola.learn(seconds, bits);
    }
}
