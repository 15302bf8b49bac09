//! What the window will do: a numeric renewal recursion over (window at loss) x (time left).
//!
//! Between losses the window is a known function of time; a loss renews it. So the reward (packets,
//! or window-seconds) collected in `n` steps after a loss at `w` obeys
//!
//! `G(w, n) = sum_i S_i q_i (R_i + G(w_i, n-i)) + S_n R_n`
//!
//! where `S_i` is the chance of no loss before step `i`, `q_i` that of a loss in it, `R_i` the reward
//! up to it and `w_i` the window there. First and second moments are tabulated once per fit; a
//! forecast then is one such sum, from the flow's own state.

use pathcast_analysis::epochs::{FlowState, Phase};
use pathcast_analysis::hazard::Hazard;
use pathcast_window_law::{Cc, Epoch, slow_start_packets};

/// ln of the ratio between neighboring windows of the table.
const GRID_STEP: f64 = 0.06;
/// Fewest and most steps that a horizon is cut into.
const STEPS: (usize, usize) = (24, 64);

/// Windows are whole packets: a law's window is rounded down, by half a packet on average. At a dozen
/// packets, that is a twentieth of the rate.
const ROUNDED: f64 = 0.5;

/// What a window is worth: its packets, up to what the link carries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reward {
    /// Reward per second of one packet of window: 1 for the mean window, 1/RTT for a rate.
    pub per_packet: f64,
    /// The most that a second can be worth: the link's rate, or infinite.
    pub limit: f64,
    /// Whether packets beyond the limit are sent all the same, and wait before the link: unless an application says when to send.
    pub queues: bool,
}

impl Reward {
    /// What a second at this window is worth.
    pub fn of(&self, cwnd_packets: f64) -> f64 {
        (cwnd_packets * self.per_packet).min(self.limit)
    }

    /// Packets of this window that wait before the link. What is sent is what the link carries and by how much these grow.
    pub fn waiting(&self, cwnd_packets: f64) -> f64 {
        if self.queues {
            // of an infinite limit none
            (cwnd_packets - self.limit / self.per_packet).max(0.0)
        } else {
            0.0
        }
    }
}

/// Everything that the recursion is computed from.
#[derive(Debug, Clone, Copy)]
pub struct Law<'a> {
    /// Window law.
    pub cc: Cc,
    /// Round-trip time, seconds.
    pub rtt_s: f64,
    /// Chance of losses.
    pub hazard: &'a Hazard,
    /// What windows are worth.
    pub reward: Reward,
    /// The window that the application or the receive window does not let it pass; infinite if none.
    pub ceiling_packets: f64,
}

/// One piece of a forecast's distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece {
    /// Probability of the piece.
    pub weight: f64,
    /// Mean reward per second.
    pub mean: f64,
    /// Its standard deviation.
    pub sd: f64,
}

/// The table for one horizon.
#[derive(Debug, Clone)]
pub struct Renewal {
    horizon_s: f64,
    steps: usize,
    ln_low: f64,
    windows: usize,
    /// [flag][window][n]: (first, second moment) of the reward in n steps after a loss.
    /// flag 1: the loss comes below the former Wmax, so CUBIC converges fast.
    moments: Vec<(f64, f64)>,
}

impl Renewal {
    /// Tabulates for windows in `low_packets..=high_packets`.
    ///
    /// `loss_gap_s` is about how long the flow goes without a loss; it sets the resolution.
    pub fn new(
        law: Law<'_>,
        horizon_s: f64,
        (low_packets, high_packets): (f64, f64),
        loss_gap_s: f64,
    ) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped
        let steps = ((10.0 * horizon_s / loss_gap_s) as usize).clamp(STEPS.0, STEPS.1);
        let ln_low = low_packets.max(1.0).ln();
        let span = (high_packets.max(low_packets * 1.2).ln() - ln_low) / GRID_STEP;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped
        let windows = (span.ceil() as usize).clamp(2, 160) + 1;
        let flags = if law.cc == Cc::Cubic { 2 } else { 1 };
        let mut table = Self {
            horizon_s,
            steps,
            ln_low,
            windows,
            moments: vec![(0.0, 0.0); flags * windows * (steps + 1)],
        };
        let dt = horizon_s / steps as f64;
        let per_packet = table.per_packet(law, dt, &|s| s);
        let paths: Vec<Path> = (0..flags * windows)
            .map(|row| {
                let loss = (ln_low + (row % windows) as f64 * GRID_STEP).exp();
                let aim = if row >= windows { f64::INFINITY } else { 0.0 };
                let exact = Epoch::after_loss(law.cc, loss, aim, law.rtt_s);
                let start = (exact.start_packets - ROUNDED).max(1.0);
                // the window at the loss is whole, 0.85 of it are not
                let w_max = exact.w_max_packets - if row >= windows { ROUNDED } else { 0.0 };
                let epoch = Epoch::new(law.cc, start, w_max, law.rtt_s);
                let after = AfterLoss {
                    from: loss,
                    elapsed_s: 0.0,
                    epoch,
                };
                let window = |s: f64| after.window_packets(s, law.rtt_s).min(law.ceiling_packets);
                table.path(law, dt, epoch.w_max_packets, ROUNDED, &window, &per_packet)
            })
            .collect();
        table.fill(&paths);
        table
    }

    /// Computes the moments of ever more steps, from the paths without loss of each row.
    fn fill(&mut self, paths: &[Path]) {
        let (steps, at) = (self.steps, self.steps + 1);
        // a loss comes in the middle of a step: moments half a step later than those of `moments`
        let mut halves = vec![(0.0, 0.0); paths.len() * at];
        // of each row, the mean of what was got until a loss in the steps so far, and of its square
        let mut known = vec![(0.0, 0.0); paths.len()];
        for n in 1..=steps {
            for (row, path) in paths.iter().enumerate() {
                let left = n - 1;
                let (lost, got) = (path.lost[left], path.reward_at_loss(left));
                known[row].0 += lost * got;
                known[row].1 += lost * got * got;
                let next = if left > 0 {
                    // not known yet: carried on
                    let a = self.after(&path.next[0], left - 1);
                    let b = self.after(&path.next[0], left);
                    between(a, b, 1.5)
                } else {
                    let half = 0.5 * paths[path.next[0].row].reward[1];
                    (half, half * half)
                };
                let (mut first, mut second) = (
                    path.lost[0] * next.0,
                    path.lost[0] * (2.0 * path.reward_at_loss(0) * next.0 + next.1),
                );
                let losses = path.lost[1..n].iter().zip(&path.next[1..n]);
                let rewards = path.reward[1..=n].windows(2);
                for ((i, (&lost, next)), reward) in (1..n).zip(losses).zip(rewards) {
                    let low = next.row * at + left - i;
                    let (g1, g2) = towards(halves[low], halves[low + at], next.part);
                    // twice what was got until the middle of the step
                    let got = reward[0] + reward[1];
                    first += lost * g1;
                    second += lost * (got * g1 + g2);
                }
                let (weight, got) = (path.survival[n], path.reward[n]);
                first += known[row].0 + weight * got;
                second += known[row].1 + weight * got * got;
                self.moments[row * at + n] = (first, second);
            }
            for row in 0..paths.len() {
                let now = row * at + n;
                halves[now - 1] = between(self.moments[now - 1], self.moments[now], 0.5);
            }
        }
    }

    /// The horizon of the table, seconds.
    pub fn horizon_s(&self) -> f64 {
        self.horizon_s
    }

    /// Distribution of the mean reward per second over the horizon, from a flow's state at `now_s`:
    /// one piece per step in which the next loss may come, and one for none.
    pub fn forecast(&self, law: Law<'_>, state: &FlowState, now_s: f64) -> Vec<Piece> {
        let dt = self.horizon_s / self.steps as f64;
        let since_loss_s = state.last_loss_s.map_or(f64::INFINITY, |loss| now_s - loss);
        let per_packet = self.per_packet(law, dt, &|s| since_loss_s + s);
        let w_max = state.w_max_packets;
        // the end of a standstill is forecast by itself
        let ceiling = if state.held_s > 0.0 {
            f64::INFINITY
        } else {
            law.ceiling_packets.max(state.cwnd_packets).max(1.0)
        };
        let path = match state.phase {
            Phase::Recovery => {
                let epoch = Epoch::new(law.cc, state.ssthresh_packets.max(1.0), w_max, law.rtt_s);
                let after = AfterLoss {
                    from: state.cwnd_packets,
                    elapsed_s: since_loss_s,
                    epoch,
                };
                self.path(
                    law,
                    dt,
                    w_max,
                    0.0,
                    &|s| after.window_packets(s, law.rtt_s).min(ceiling),
                    &per_packet,
                )
            }
            Phase::SlowStart => {
                // without a threshold, the end of slow start is unknown: two doublings at most
                let until = state.ssthresh_packets.min(4.0 * state.cwnd_packets);
                let lasts_s = law.rtt_s * (until / state.cwnd_packets).max(1.0).log2();
                let epoch = Epoch::new(law.cc, until, w_max, law.rtt_s);
                let window = |s: f64| {
                    if s < lasts_s {
                        slow_start_packets(state.cwnd_packets, s, law.rtt_s, until)
                    } else {
                        epoch.window_packets(s - lasts_s).min(ceiling)
                    }
                };
                self.path(law, dt, w_max, 0.0, &window, &per_packet)
            }
            Phase::Avoidance => {
                let epoch = state.epoch(law.cc, law.rtt_s);
                // while the window is held, the law's clock stands still
                let held_s = state.held_s;
                let in_epoch_s = (now_s - held_s - state.epoch_start_s).max(0.0);
                let growth = if held_s > 0.0 { 1.0 } else { state.growth };
                // the law may be off by now (ACK loss, application limits): grow from what is
                let by_now = epoch.window_packets(in_epoch_s);
                let window = |s: f64| {
                    let free_s = (s - state.release_in_s).max(0.0);
                    let grown = epoch.window_packets(in_epoch_s + free_s) - by_now;
                    (state.cwnd_packets + growth * grown).clamp(1.0, ceiling)
                };
                self.path(law, dt, w_max, 0.0, &window, &per_packet)
            }
        };
        let n = self.steps;
        let mut pieces = Vec::with_capacity(n + 1);
        for i in 0..n {
            let left = n - i - 1;
            let (g1, g2) = between(
                self.after(&path.next[i], left),
                self.after(&path.next[i], left + 1),
                0.5,
            );
            let sd = (g2 - g1 * g1).max(0.0).sqrt() / self.horizon_s;
            let mean = (path.reward_at_loss(i) + g1) / self.horizon_s;
            pieces.push(Piece {
                weight: path.lost[i],
                mean,
                sd,
            });
        }
        let mean = path.reward[n] / self.horizon_s;
        pieces.push(Piece {
            weight: path.survival[n],
            mean,
            sd: 0.0,
        });
        pieces
    }

    /// Each step: the rate of losses of a path, over the loss probability of its window times that window.
    fn per_packet(&self, law: Law<'_>, dt: f64, age_s: &dyn Fn(f64) -> f64) -> Vec<f64> {
        let of_step = |i: usize| {
            let age_s = age_s((i as f64 + 0.5) * dt);
            // one loss event per round trip: none while one is being repaired, which may be a part of a step
            let exposed = ((age_s + 0.5 * dt - law.rtt_s) / dt).clamp(0.0, 1.0);
            exposed * law.hazard.clustering(age_s) / law.rtt_s
        };
        (0..self.steps).map(of_step).collect()
    }

    /// Rewards and loss chances along one path without loss, whose windows are `rounded` packets lower than
    /// the law's. Whether a loss comes below `w_max` depends on whole windows, so rounding does not change
    /// it.
    fn path(
        &self,
        law: Law<'_>,
        dt: f64,
        w_max: f64,
        rounded: f64,
        window: &dyn Fn(f64) -> f64,
        per_packet: &[f64],
    ) -> Path {
        let n = self.steps;
        let waiting = |s: f64| law.reward.waiting((window(s) - rounded).max(1.0));
        let waiting_at_first = waiting(0.0);
        let mut path = Path {
            reward: Vec::with_capacity(n + 1),
            survival: Vec::with_capacity(n + 1),
            lost: Vec::with_capacity(n),
            next: Vec::with_capacity(n),
        };
        let (mut carried, mut survival) = (0.0, 1.0);
        path.reward.push(0.0);
        path.survival.push(1.0);
        for (i, per_packet) in per_packet.iter().enumerate() {
            let s = (i as f64 + 0.5) * dt;
            let exact = window(s);
            let w = (exact - rounded).max(1.0);
            carried += law.reward.of(w) * dt;
            let rate = per_packet * law.hazard.base(w) * w;
            let lost = -(-rate * dt).exp_m1() * survival;
            survival -= lost;
            let more_waits = waiting((i as f64 + 1.0) * dt) - waiting_at_first;
            path.reward.push(carried + more_waits);
            path.survival.push(survival);
            path.lost.push(lost);
            path.next.push(self.place(w, exact < w_max));
        }
        path
    }

    fn place(&self, cwnd_packets: f64, below_w_max: bool) -> Place {
        let x = ((cwnd_packets.max(1.0).ln() - self.ln_low) / GRID_STEP)
            .clamp(0.0, (self.windows - 1) as f64);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped above
        let low = (x as usize).min(self.windows - 2);
        let rows = self.moments.len() / (self.steps + 1);
        let flag = if below_w_max && rows > self.windows {
            self.windows
        } else {
            0
        };
        Place {
            row: flag + low,
            part: x - low as f64,
        }
    }

    fn after(&self, place: &Place, n: usize) -> (f64, f64) {
        let at = place.row * (self.steps + 1) + n;
        let (low, high) = (self.moments[at], self.moments[at + self.steps + 1]);
        towards(low, high, place.part)
    }
}

struct Path {
    reward: Vec<f64>,
    survival: Vec<f64>,
    lost: Vec<f64>,
    next: Vec<Place>,
}

impl Path {
    /// A loss in a step comes in its middle.
    fn reward_at_loss(&self, i: usize) -> f64 {
        0.5 * (self.reward[i] + self.reward[i + 1])
    }
}

/// Moments this part of the way from one window's to the next one's.
fn towards(low: (f64, f64), high: (f64, f64), part: f64) -> (f64, f64) {
    (
        low.0 + part * (high.0 - low.0),
        low.1 + part * (high.1 - low.1),
    )
}

/// Moments this part of the way from `a` to `b`: means and variances are carried on, not squares.
fn between(a: (f64, f64), b: (f64, f64), part: f64) -> (f64, f64) {
    let variance = |m: (f64, f64)| m.1 - m.0 * m.0;
    let mean = a.0 + part * (b.0 - a.0);
    let var = variance(a) + part * (variance(b) - variance(a));
    (mean, mean * mean + var.max(0.0))
}

#[derive(Clone, Copy)]
struct Place {
    row: usize,
    part: f64,
}

/// Recovery for one round trip, from the window at the loss down to where avoidance begins.
struct AfterLoss {
    from: f64,
    elapsed_s: f64,
    epoch: Epoch,
}

impl AfterLoss {
    fn window_packets(&self, s: f64, rtt_s: f64) -> f64 {
        let left_s = (rtt_s - self.elapsed_s).max(0.0);
        if s < left_s {
            self.from + (self.epoch.start_packets - self.from) * s / left_s
        } else {
            self.epoch.window_packets(s - left_s)
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{RngCore, SeedableRng};

    use super::*;

    const P: f64 = 2e-4;
    const RTT_S: f64 = 0.1;

    fn constant_loss() -> Hazard {
        let mut hazard = Hazard::default();
        for w in 5..3000 {
            hazard.sent(f64::from(w), 100.0 / P, 10.0);
            (0..100).for_each(|_| hazard.lost(f64::from(w), 10.0));
        }
        hazard.smooth();
        hazard
    }

    fn state(cc: Cc, start: f64, w_max: f64, in_epoch_s: f64) -> FlowState {
        let epoch = Epoch::new(cc, start, w_max, RTT_S);
        FlowState {
            phase: Phase::Avoidance,
            cwnd_packets: epoch.window_packets(in_epoch_s),
            epoch_start_s: 0.0,
            epoch_start_packets: start,
            w_max_packets: epoch.w_max_packets,
            last_loss_s: Some(-RTT_S),
            ssthresh_packets: start,
            growth: 1.0,
            held_s: 0.0,
            release_in_s: 0.0,
        }
    }

    /// The same process, drawn: mean window over the horizon, many times.
    fn drawn(cc: Cc, state: &FlowState, now_s: f64, horizon_s: f64, runs: usize) -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut uniform = move || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let dt = 0.01;
        let mut means: Vec<f64> = (0..runs)
            .map(|_| {
                let mut epoch = state.epoch(cc, RTT_S);
                let (mut t, mut area) = (now_s, 0.0);
                let mut recovery: Option<(f64, f64)> = None;
                let mut lost = false;
                for _ in 0..(horizon_s / dt) as usize {
                    if let Some((from, left_s)) = &mut recovery {
                        let part = 1.0 - *left_s / RTT_S;
                        area += dt * (*from + part * (epoch.start_packets - *from));
                        *left_s -= dt;
                        if *left_s <= 0.5 * dt {
                            recovery = None;
                            t = 0.0;
                        }
                        continue;
                    }
                    let exact = epoch.window_packets(t);
                    // the state's window is read, those after a loss are rounded
                    let w = if lost { exact.floor() } else { exact };
                    area += w * dt;
                    t += dt;
                    if uniform() < -(-P * w / RTT_S * dt).exp_m1() {
                        lost = true;
                        epoch = Epoch::after_loss(cc, w, epoch.w_max_packets, RTT_S);
                        epoch =
                            Epoch::new(cc, epoch.start_packets.floor(), epoch.w_max_packets, RTT_S);
                        recovery = Some((w, RTT_S));
                    }
                }
                area / horizon_s
            })
            .collect();
        means.sort_by(f64::total_cmp);
        means
    }

    #[test]
    fn the_recursion_agrees_with_drawing() {
        let hazard = constant_loss();
        let reward = Reward {
            per_packet: 1.0,
            limit: f64::INFINITY,
            queues: true,
        };
        for cc in [Cc::Reno, Cc::Cubic] {
            let law = Law {
                cc,
                rtt_s: RTT_S,
                hazard: &hazard,
                reward,
                ceiling_packets: f64::INFINITY,
            };
            let (now_s, state) = (2.0, state(cc, 70.0, 100.0, 2.0));
            for horizon_s in [1.0, 5.0, 20.0] {
                let table = Renewal::new(law, horizon_s, (5.0, 3000.0), 3.0);
                let pieces = table.forecast(law, &state, now_s);
                let weight: f64 = pieces.iter().map(|piece| piece.weight).sum();
                assert!((weight - 1.0).abs() < 1e-12);
                let mean: f64 = pieces.iter().map(|piece| piece.weight * piece.mean).sum();
                let square: f64 = pieces
                    .iter()
                    .map(|p| p.weight * (p.mean * p.mean + p.sd * p.sd))
                    .sum();
                let sd = (square - mean * mean).sqrt();
                let draws = drawn(cc, &state, now_s, horizon_s, 4000);
                let n = draws.len() as f64;
                let drawn_mean = draws.iter().sum::<f64>() / n;
                let drawn_sd =
                    (draws.iter().map(|x| (x - drawn_mean).powi(2)).sum::<f64>() / n).sqrt();
                let at = format!("{cc:?} {horizon_s} s: {mean}+-{sd}, {drawn_mean}+-{drawn_sd}");
                eprintln!("{at}");
                assert!((mean / drawn_mean - 1.0).abs() < 0.01, "{at}");
                assert!((sd / drawn_sd - 1.0).abs() < 0.06, "{at}");
            }
        }
    }

    #[test]
    fn without_losses_the_law_alone_counts() {
        let mut hazard = Hazard::default();
        hazard.sent(100.0, 1e15, 1.0);
        hazard.smooth();
        let reward = Reward {
            per_packet: 1.0,
            limit: f64::INFINITY,
            queues: true,
        };
        let law = Law {
            ceiling_packets: f64::INFINITY,
            cc: Cc::Reno,
            rtt_s: RTT_S,
            hazard: &hazard,
            reward,
        };
        let table = Renewal::new(law, 10.0, (50.0, 500.0), 1e9);
        let pieces = table.forecast(law, &state(Cc::Reno, 100.0, 0.0, 1.0), 1.0);
        let mean: f64 = pieces.iter().map(|piece| piece.weight * piece.mean).sum();
        // 110 packets now, one more each 0.1 s, for 10 s
        assert!((mean - 160.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn the_link_limits_what_is_sent_to_what_it_carries_and_what_begins_to_wait() {
        let hazard = constant_loss();
        let (horizon_s, limit) = (5.0, 800.0);
        let reward = Reward {
            per_packet: 1.0 / RTT_S,
            limit,
            queues: true,
        };
        let law = Law {
            ceiling_packets: f64::INFINITY,
            cc: Cc::Cubic,
            rtt_s: RTT_S,
            hazard: &hazard,
            reward,
        };
        let table = Renewal::new(law, horizon_s, (5.0, 500.0), 3.0);
        let (now_s, state) = (0.5, state(Cc::Cubic, 100.0, 120.0, 0.5));
        let pieces = table.forecast(law, &state, now_s);
        // 80 packets fill the path, and all others wait
        assert_eq!(reward.waiting(79.0), 0.0);
        let now = reward.waiting(state.cwnd_packets);
        let later = state
            .epoch(Cc::Cubic, RTT_S)
            .window_packets(now_s + horizon_s)
            - 80.0;
        let without_loss = pieces.last().unwrap().mean;
        assert!((without_loss - (limit + (later - now) / horizon_s)).abs() < 1e-9);
        for piece in pieces {
            assert!(piece.mean <= without_loss + 1e-9, "{piece:?}");
        }
    }

    #[test]
    fn below_the_link_s_rate_nothing_waits() {
        let free = Reward {
            per_packet: 10.0,
            limit: f64::INFINITY,
            queues: true,
        };
        assert_eq!((free.waiting(1e9), free.of(100.0)), (0.0, 1000.0));
    }
}
