//! Trials of a template: shadow, canary with paired time slots, and the verdict of a sequential test.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::prefix::Prefix;
use crate::sequential::{Confidence, Interval, Sums};
use crate::settings::Settings;
use crate::template::Name;

/// Slots for which reports of a slot may come later.
const GRACE_SLOTS: u64 = 3;
/// Part of a load's variance that all loads of one slot share.
const SHARED: f64 = 0.125;
/// The sum of w^2 x^2 near which the interval of times is tightest, a seventh of it: that of 1000 loads in each arm
/// whose logarithms spread by 0.3.
const RHO: f64 = 4.0;
/// The same for differences of loss: 300 pairs that spread by 0.005.
const RHO_LOSS: f64 = 1e-3;
/// Part of alpha for loss.
const LOSS_PART: f64 = 0.1;
/// Prefixes that roll back within this time count together, milliseconds.
const TOGETHER_MS: u64 = 300_000;
/// Fewest prefixes that roll back until all do.
const FEWEST_BAD: usize = 3;

/// Where a trial stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Computes placements and applies none.
    Shadow,
    /// Alternates between the template and what was in force, on some prefixes.
    Canary,
    /// The template was better; an operator must approve it.
    Passed,
    /// The template is in force for all prefixes that call for it.
    Promoted,
    /// The template was worse, or an operator reverted it.
    RolledBack,
    /// No difference was found; what was in force stays.
    NoDifference,
    /// A newer model replaced it.
    Cancelled,
}

/// A verdict on a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The next stage.
    pub stage: Stage,
    /// Why.
    pub reason: String,
}

/// What one prefix saw in both arms of a block: two slots, one of each arm in random order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Pair {
    /// Logarithms of completion times, milliseconds: control, treatment.
    times: [Sums; 2],
    losses: [Sums; 2],
}

/// A trial of one template under one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Its number.
    pub id: u64,
    /// What is tried.
    pub template: Name,
    /// Number of the model that calls for it.
    pub model: u64,
    /// Where it stands.
    pub stage: Stage,
    /// Since when, milliseconds since 1970.
    pub since_ms: u64,
    /// Why.
    pub reason: String,
    /// Prefixes of the canary, and what was in force for them.
    pub(crate) members: BTreeMap<Prefix, Option<Name>>,
    /// The slot in force.
    pub(crate) slot: Option<u64>,
    /// Block by the first version of each slot.
    versions: BTreeMap<u64, u64>,
    /// Blocks that reports may still add to.
    blocks: BTreeMap<u64, BTreeMap<Prefix, Pair>>,
    /// Of prefixes with too few loads for both arms of a block.
    carried: BTreeMap<Prefix, Pair>,
    time: Confidence,
    loss: Confidence,
    /// Loads in both arms: control, treatment.
    pub loads: [f64; 2],
    /// When prefixes rolled back after the promotion, milliseconds.
    alarms_ms: Vec<u64>,
}

impl Trial {
    /// A trial that begins in the shadow.
    pub fn new(id: u64, template: Name, model: u64, now_ms: u64) -> Self {
        Self {
            id,
            template,
            model,
            stage: Stage::Shadow,
            since_ms: now_ms,
            reason: "prefixes call for it".into(),
            members: BTreeMap::new(),
            slot: None,
            versions: BTreeMap::new(),
            blocks: BTreeMap::new(),
            carried: BTreeMap::new(),
            time: Confidence::default(),
            loss: Confidence::default(),
            loads: [0.0; 2],
            alarms_ms: Vec::new(),
        }
    }

    /// Goes over to a stage.
    pub(crate) fn enter(&mut self, verdict: Verdict, now_ms: u64) {
        self.stage = verdict.stage;
        self.reason = verdict.reason;
        self.since_ms = now_ms;
        self.slot = None;
        if self.stage != Stage::Canary {
            self.blocks.clear();
            self.carried.clear();
            self.versions.clear();
        }
    }

    /// Number of prefixes in the canary.
    pub fn prefixes(&self) -> usize {
        self.members.len()
    }

    /// How much longer completions take than what was in force, as a ratio less 1, with an interval valid at every look.
    pub fn gain(&self, settings: &Settings) -> Option<Interval> {
        self.time
            .interval(settings.alpha * (1.0 - LOSS_PART), RHO)
            .map(Interval::ratio)
    }

    /// The increase of the share of lost packets, with its interval.
    pub fn loss(&self, settings: &Settings) -> Option<Interval> {
        self.loss.interval(settings.alpha * LOSS_PART, RHO_LOSS)
    }

    /// The slot at a time, of a canary.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive, and years at most
    pub(crate) fn slot_at(&self, now_ms: u64, settings: &Settings) -> u64 {
        (now_ms.saturating_sub(self.since_ms) as f64 / (1000.0 * settings.slot_s)) as u64
    }

    /// Whether a prefix has the template in a slot: in one of each two slots, at random.
    pub(crate) fn is_treated(&self, prefix: Prefix, slot: u64) -> bool {
        let is_second = draw(prefix, self.id.wrapping_mul(0x9e37_79b9) ^ (slot / 2)) < 0.5;
        (slot % 2 == 1) == is_second
    }

    /// Notes the first version of the slot that begins.
    pub(crate) fn begin_slot(&mut self, slot: u64, version: u64) {
        self.slot = Some(slot);
        self.versions.insert(version, slot / 2);
        let old = slot.saturating_sub(2 * GRACE_SLOTS + 4) / 2;
        while self.versions.len() > 1
            && self
                .versions
                .first_entry()
                .is_some_and(|first| *first.get() < old)
        {
            self.versions.pop_first();
        }
    }

    /// Adds logarithms of completion times that a member saw under a template of a version.
    pub(crate) fn add_times(
        &mut self,
        prefix: Prefix,
        template: &Name,
        version: u64,
        times: &Sums,
    ) {
        let arm = usize::from(*template == self.template);
        if let Some(pair) = self.pair(prefix, version) {
            pair.times[arm].add(times);
        }
    }

    /// Adds a share of lost packets that a member saw under a template.
    pub(crate) fn add_loss(&mut self, prefix: Prefix, template: &Name, version: u64, loss: f64) {
        let arm = usize::from(*template == self.template);
        if let Some(pair) = self.pair(prefix, version) {
            pair.losses[arm].add(&Sums {
                count: 1.0,
                sum: loss,
                squares: loss * loss,
            });
        }
    }

    fn pair(&mut self, prefix: Prefix, version: u64) -> Option<&mut Pair> {
        if self.stage != Stage::Canary || !self.members.contains_key(&prefix) {
            return None;
        }
        let block = *self.versions.range(..=version).next_back()?.1;
        // a block that is closed takes nothing more: its verdict is given
        let open_from = self.slot?.saturating_sub(GRACE_SLOTS + 1) / 2;
        (block >= open_from).then(|| {
            self.blocks
                .entry(block)
                .or_default()
                .entry(prefix)
                .or_default()
        })
    }

    /// Closes the blocks whose reports have come, and judges.
    pub(crate) fn judge(&mut self, now_ms: u64, settings: &Settings) -> Option<Verdict> {
        let slot = self.slot_at(now_ms, settings);
        while let Some(first) = self.blocks.first_entry() {
            if 2 * first.key() + 2 + GRACE_SLOTS > slot {
                break;
            }
            let pairs = first.remove();
            for (prefix, pair) in pairs {
                self.close(prefix, &pair);
            }
        }
        self.verdict(settings)
    }

    fn close(&mut self, prefix: Prefix, pair: &Pair) {
        let mut all = self.carried.remove(&prefix).unwrap_or_default();
        for arm in [0, 1] {
            all.times[arm].add(&pair.times[arm]);
            all.losses[arm].add(&pair.losses[arm]);
        }
        let [control, treatment] = all
            .times
            .map(|times| times.mean().map(|mean| (mean, times.count)));
        if let (Some((before, n)), Some((after, m))) = (control, treatment) {
            self.time
                .add(after - before, 1.0 / (1.0 / n + 1.0 / m + SHARED));
            self.loads[0] += n;
            self.loads[1] += m;
            all.times = [Sums::default(); 2];
        }
        if let [Some(before), Some(after)] = all.losses.map(|losses| losses.mean()) {
            self.loss.add(after - before, 1.0);
            all.losses = [Sums::default(); 2];
        }
        if all != Pair::default() {
            self.carried.insert(prefix, all);
        }
    }

    fn verdict(&self, settings: &Settings) -> Option<Verdict> {
        let say = |stage, reason| Some(Verdict { stage, reason });
        let loads = self.loads[0] + self.loads[1];
        let percent = |part: f64| 100.0 * part;
        if let Some(gain) = self.gain(settings) {
            let span = format!(
                "{:+.1} % ({:+.1} to {:+.1} %)",
                percent(gain.mean),
                percent(gain.low),
                percent(gain.high)
            );
            if gain.low > 0.0 {
                return say(
                    Stage::RolledBack,
                    format!("completion time {span} after {loads} loads"),
                );
            }
            if let Some(loss) = self
                .loss(settings)
                .filter(|loss| loss.low > settings.loss_increase)
            {
                let loss = percent(loss.mean);
                return say(
                    Stage::RolledBack,
                    format!("{loss:.1} % more packets are lost after {loads} loads"),
                );
            }
            if gain.high < 0.0 {
                let stage = if settings.approval {
                    Stage::Passed
                } else {
                    Stage::Promoted
                };
                return say(stage, format!("completion time {span} after {loads} loads"));
            }
        }
        let is_over = loads >= settings.most_loads;
        is_over.then(|| Verdict {
            stage: Stage::NoDifference,
            reason: format!("no difference after {loads} loads"),
        })
    }

    /// Notes that a prefix rolled back after the promotion. Says whether so many did that all must.
    pub(crate) fn alarm(
        &mut self,
        placed: usize,
        now_ms: u64,
        settings: &Settings,
    ) -> Option<Verdict> {
        self.alarms_ms
            .retain(|then| now_ms.saturating_sub(*then) < TOGETHER_MS);
        self.alarms_ms.push(now_ms);
        let bad = self.alarms_ms.len();
        let all = bad + placed;
        let is_bad = bad >= FEWEST_BAD && bad as f64 >= settings.bad_share * all as f64;
        (self.stage == Stage::Promoted && is_bad).then(|| Verdict {
            stage: Stage::RolledBack,
            reason: format!("{bad} of {all} prefixes got worse within five minutes"),
        })
    }
}

/// A number from 0 to 1, always the same for a prefix and a salt (SplitMix64's finalizer; Steele et al., OOPSLA 2014).
pub(crate) fn draw(prefix: Prefix, salt: u64) -> f64 {
    let bits = match prefix.net() {
        ipnet::IpNet::V4(net) => u128::from(net.network().to_bits()),
        ipnet::IpNet::V6(net) => net.network().to_bits(),
    };
    #[allow(clippy::cast_possible_truncation)] // both halves are mixed
    let parts = [
        bits as u64,
        (bits >> 64) as u64,
        u64::from(prefix.length()),
        salt,
    ];
    let mixed = parts.iter().fold(0_u64, |state, part| {
        let mut z = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    });
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}
