//! What a transfer still takes once a packet is lost: a renewal equation over (window when the loss is
//! noticed) x (packets left).
//!
//! From a loss at window `w` on, with `r` packets left after the lost one:
//!
//! `T(r | w) = sum_i q_i (t_i + T(r - r_i | w_i)) + S_r max(t_r, repair)`
//!
//! where `t_i` is the time in which `r_i` packets leave, `q_i` the chance that the next loss event
//! begins there, `w_i` the window then, and `S_r` the chance of none. Counted in packets, not seconds,
//! all terms lie on one grid. Means and variances are kept. Beyond the grid, some loss events long, both
//! grow linearly: `T(r | w) = r / B + h(w) + c`, where `B` is the rate of the chain of losses in the long
//! run and `h` solves its Poisson equation (Markov renewal reward; Tijms 2003, chapter 6).

use super::avoidance::Avoidance;
use super::walk::Cell;
use super::{INITIAL_WINDOW, LatencyPath, RTO_MIN_S};
use pathcast_window_law::{Cc, Epoch};

/// The number of grid steps between two losses, about.
const STEPS_A_LOSS: f64 = 5.0;
/// The least number of steps of a transfer that is shorter than the grid.
const LEAST_STEPS: f64 = 24.0;
/// Most steps of the grid.
const STEPS: usize = 26;
/// Windows of the grid.
const WINDOWS: usize = 16;
/// Losses after which a chain has forgotten where it began: 0.7^16 is 3e-3.
const CHAIN_ROUNDS: u32 = 16;
/// A path that is as unlikely to last is not followed.
const NEGLIGIBLE: f64 = 4e-3;
/// The grid does without the smallest and the largest windows at first losses that are less likely.
const UNLIKELY: (f64, f64) = (5e-3, 3e-2);
/// Windows below which three packets after a lost one are unlikely.
const FAST_RETRANSMIT_WINDOW: f64 = 4.0;
/// The least that slow start ends at, packets (RFC 5681).
const MIN_SSTHRESH: f64 = 2.0;

pub(super) struct AfterLoss {
    step: f64,
    steps: usize,
    ln_low: f64,
    ln_step: f64,
    /// `[flag * WINDOWS + window][n]`: mean and variance of the time for `n` steps.
    /// flag 1: the loss comes below CUBIC's former aim, so it converges fast.
    time: Vec<(f64, f64)>,
    /// What comes after the grid; `None` if no transfer reaches there.
    long_run: Option<LongRun>,
}

/// The chain of losses in the long run.
struct LongRun {
    /// Seconds a step.
    mean: f64,
    /// Variance a step, s^2.
    variance: f64,
    /// By row: how much of the grid's last mean is not of the long run yet, seconds.
    early: Vec<f64>,
}

impl AfterLoss {
    pub(super) fn new(
        path: &LatencyPath<'_>,
        cells: &[Cell],
        hazards: &[f64],
        packets: f64,
    ) -> Self {
        let (least, most) = windows_at_losses(cells, hazards);
        let (gap, typical) = typical_loss(path, least, packets);
        let step = (gap / STEPS_A_LOSS).min(packets / LEAST_STEPS);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped
        let steps = ((packets / step).ceil() as usize).clamp(2, STEPS);
        let low = (0.5 * typical.min(least)).max(1.0);
        let high = (1.5 * typical.max(most)).max(1.5 * low);
        let mut table = Self {
            step,
            steps,
            ln_low: low.ln(),
            ln_step: (high / low).ln() / (WINDOWS - 1) as f64,
            time: Vec::new(),
            long_run: None,
        };
        table.solve(path, packets);
        table
    }

    /// The ways that the time of [`AfterLoss::time`] may come about, by where the next loss comes:
    /// (probability, mean, variance).
    pub(super) fn ways(
        &self,
        path: &LatencyPath<'_>,
        window: f64,
        left: f64,
    ) -> Vec<(f64, f64, f64)> {
        let course = self.course(path, window, 0.0);
        let mut ways = Vec::with_capacity(course.lost.len() + 1);
        let mut seen = 0.0;
        for (i, lost) in course.lost.iter().enumerate() {
            let rest = left - (i as f64 + 0.5) * self.step;
            if rest <= 0.0 {
                break;
            }
            let (mean, variance) = self.time_from(&course.next[i], rest);
            ways.push((*lost, course.middle_s[i] + mean, variance));
            seen += lost;
        }
        // none before the end, or before the grid's
        let x = left / self.step;
        let last = course.time_s.len() - 1;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // not negative
        let n = (x as usize).min(last - 1);
        let (a, b) = (course.time_s[n], course.time_s[n + 1]);
        let (more, variance) = match x > last as f64 {
            true => self.time_from(&course.next[last - 1], left - last as f64 * self.step),
            false => (0.0, 0.0),
        };
        let end_s = a + (b - a) * (x.min(last as f64) - n as f64);
        ways.push((1.0 - seen, (end_s + more).max(course.repair_s), variance));
        ways
    }

    /// Mean (s) and variance (s^2) of the time from a lost packet's leaving until the `left` packets
    /// after it have left and it is repaired.
    pub(super) fn time(&self, window: f64, left: f64) -> (f64, f64) {
        self.time_from(&self.place(window, false), left)
    }

    fn time_from(&self, place: &Place, left: f64) -> (f64, f64) {
        let x = left / self.step;
        let last = self.steps as f64;
        if x <= last {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to steps
            let n = (x as usize).min(self.steps - 1);
            let (a, b) = (self.at(place, n), self.at(place, n + 1));
            let part = x - n as f64;
            return (a.0 + part * (b.0 - a.0), a.1 + part * (b.1 - a.1));
        }
        let (mean, variance) = self.at(place, self.steps);
        let Some(long) = &self.long_run else {
            return (mean, variance);
        };
        // what is not of the long run yet wears off
        let early = long.early[place.row]
            + place.part * (long.early[place.row + 1] - long.early[place.row]);
        let worn = early * (1.0 - (last / x).powi(2));
        let beyond = x - last;
        (
            mean + beyond * long.mean - worn,
            variance + beyond * long.variance,
        )
    }

    fn solve(&mut self, path: &LatencyPath<'_>, packets: f64) {
        let flags = if path.cc == Cc::Cubic { 2 } else { 1 };
        let rows = flags * WINDOWS;
        let stride = self.steps + 1;
        self.time = vec![(0.0, 0.0); rows * stride];
        // T(r - half a step | w), mean and variance: for losses within a step
        let mut middle = vec![(0.0, 0.0); rows * stride];
        let courses: Vec<Course> = (0..rows)
            .map(|row| {
                let window = (self.ln_low + (row % WINDOWS) as f64 * self.ln_step).exp();
                let aim = if row < WINDOWS { 0.0 } else { f64::INFINITY };
                self.course(path, window, aim)
            })
            .collect();
        for (row, course) in courses.iter().enumerate() {
            self.time[row * stride] = (course.repair_s, 0.0);
        }
        for n in 1..=self.steps {
            for (row, course) in courses.iter().enumerate() {
                let (mut mean, mut square, mut seen) = (0.0, 0.0, 0.0);
                for (i, lost) in course.lost.iter().enumerate().take(n) {
                    if *lost == 0.0 {
                        continue;
                    }
                    let place = &course.next[i];
                    let (low, high) = if i > 0 {
                        let at = place.row * stride + n - i;
                        (middle[at], middle[at + stride])
                    } else {
                        // not known yet: carried on from the last two
                        let at = place.row * stride + n;
                        (self.carried_on(at, n), self.carried_on(at + stride, n))
                    };
                    let m = course.middle_s[i] + low.0 + place.part * (high.0 - low.0);
                    let v = low.1 + place.part * (high.1 - low.1);
                    mean += lost * m;
                    square += lost * (m * m + v);
                    seen += lost;
                }
                let end_s = course.time_s.get(n).copied().unwrap_or(0.0);
                let end_s = end_s.max(course.repair_s);
                let left = 1.0 - seen;
                mean += left * end_s;
                square += left * end_s * end_s;
                self.time[row * stride + n] = (mean, (square - mean * mean).max(0.0));
            }
            for row in 0..rows {
                let at = row * stride + n;
                let (a, b) = (self.time[at - 1], self.time[at]);
                middle[at] = (0.5 * (a.0 + b.0), 0.5 * (a.1 + b.1));
            }
        }
        if packets > self.step * self.steps as f64 {
            self.long_run = Some(self.long_run(&courses));
        }
    }

    /// Rate and variance in the long run, and how far each row is from it at the end of the grid.
    fn long_run(&self, courses: &[Course]) -> LongRun {
        let rows = courses.len();
        let cycles: Vec<Cycle> = courses.iter().map(Course::cycle).collect();
        // the chain's transitions, and the windows that losses come at in the long run
        let mut to = vec![0.0; rows * rows];
        for (row, course) in courses.iter().enumerate() {
            for (_, _, lost, place) in course.ends() {
                to[row * rows + place.row] += lost * (1.0 - place.part);
                to[row * rows + place.row + 1] += lost * place.part;
            }
        }
        let mut at: Vec<f64> = vec![1.0 / rows as f64; rows];
        let mut next = vec![0.0; rows];
        for _ in 0..CHAIN_ROUNDS {
            next.fill(0.0);
            for (weight, to) in at.iter().zip(to.chunks_exact(rows)) {
                (next.iter_mut().zip(to)).for_each(|(next, to)| *next += weight * to);
            }
            std::mem::swap(&mut at, &mut next);
        }
        let over = |of: &dyn Fn(&Cycle) -> f64| -> f64 {
            at.iter().zip(&cycles).map(|(w, cycle)| w * of(cycle)).sum()
        };
        let steps = over(&|cycle| cycle.steps);
        let mean = over(&|cycle| cycle.s) / steps;
        // h(w) = time - steps / B + E[h(w')], up to a constant
        let mut h = vec![0.0; rows];
        for _ in 0..CHAIN_ROUNDS {
            for ((next, cycle), to) in next.iter_mut().zip(&cycles).zip(to.chunks_exact(rows)) {
                let onward: f64 = to.iter().zip(&h).map(|(to, h)| to * h).sum();
                *next = cycle.s - mean * cycle.steps + onward;
            }
            let level: f64 = at.iter().zip(&next).map(|(w, h)| w * h).sum();
            (h.iter_mut().zip(&next)).for_each(|(h, next)| *h = next - level);
        }
        let mut variance = 0.0;
        for ((weight, course), from) in at.iter().zip(courses).zip(&h) {
            for (steps, s, lost, place) in course.ends() {
                let onward = h[place.row] + place.part * (h[place.row + 1] - h[place.row]);
                let off = s - mean * steps + onward - from;
                variance += weight * lost * off * off;
            }
        }
        // at the end of the grid: what is not steps / B + h(w) + c, with c where the chain is at home
        let end = |row: usize| self.time[row * (self.steps + 1) + self.steps].0;
        let c: f64 = (0..rows).map(|row| at[row] * (end(row) - h[row])).sum();
        LongRun {
            mean,
            variance: variance / steps,
            early: (0..rows).map(|row| end(row) - h[row] - c).collect(),
        }
    }

    /// Half a step before entry `at`, which is step `n`, from those before it.
    fn carried_on(&self, at: usize, n: usize) -> (f64, f64) {
        let b = self.time[at - 1];
        if n < 2 {
            return b;
        }
        let a = self.time[at - 2];
        (b.0 + 0.5 * (b.0 - a.0), b.1 + 0.5 * (b.1 - a.1))
    }

    /// What comes after a loss at `window` if no other follows.
    fn course(&self, path: &LatencyPath<'_>, window: f64, aim: f64) -> Course {
        let mut flow = Recovering::new(path, window, aim);
        let mut course = Course {
            repair_s: flow.repair_s,
            time_s: Vec::with_capacity(self.steps + 1),
            middle_s: Vec::with_capacity(self.steps),
            lost: Vec::with_capacity(self.steps),
            next: Vec::with_capacity(self.steps),
        };
        course.time_s.push(0.0);
        let (mut survival, mut now_s) = (1.0, 0.0);
        for _ in 0..self.steps {
            let before = flow.window_at_loss();
            let (s, hazard) = flow.send(path, self.step);
            let mut lost = survival * -(-hazard).exp_m1();
            survival -= lost;
            if survival < NEGLIGIBLE {
                // the little that is left goes with the last step
                lost += survival;
                survival = 0.0;
            }
            course.middle_s.push(now_s + 0.5 * s);
            now_s += s;
            course.time_s.push(now_s);
            course.lost.push(lost);
            // a loss in a step comes in its middle, except that a queue overflows at its end
            let after = flow.window_at_loss();
            let w = if hazard.is_finite() {
                0.5 * (before + after)
            } else {
                after
            };
            course.next.push(self.place(w, w < flow.w_max()));
            if survival == 0.0 {
                break;
            }
        }
        course
    }

    fn place(&self, window: f64, below_aim: bool) -> Place {
        let x =
            ((window.max(1.0).ln() - self.ln_low) / self.ln_step).clamp(0.0, (WINDOWS - 1) as f64);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped
        let low = (x as usize).min(WINDOWS - 2);
        let converging = below_aim && self.time.len() > WINDOWS * (self.steps + 1);
        Place {
            row: low + if converging { WINDOWS } else { 0 },
            part: x - low as f64,
        }
    }

    fn at(&self, place: &Place, n: usize) -> (f64, f64) {
        let stride = self.steps + 1;
        let at = place.row * stride + n;
        let (a, b) = (self.time[at], self.time[at + stride]);
        (
            a.0 + place.part * (b.0 - a.0),
            a.1 + place.part * (b.1 - a.1),
        )
    }
}

/// Between two losses, in steps of packets.
struct Course {
    repair_s: f64,
    /// Time after each step.
    time_s: Vec<f64>,
    middle_s: Vec<f64>,
    /// Chance that the next loss event begins in each step.
    lost: Vec<f64>,
    next: Vec<Place>,
}

/// Means over the time between two losses.
struct Cycle {
    steps: f64,
    s: f64,
}

impl Course {
    fn cycle(&self) -> Cycle {
        let (mut steps, mut s) = (0.0, 0.0);
        for end in self.ends() {
            steps += end.2 * end.0;
            s += end.2 * end.1;
        }
        Cycle { steps, s }
    }

    /// Where the next loss may come: steps, seconds, probability (these sum to 1: what the grid cuts off
    /// is lost at its end), window.
    fn ends(&self) -> impl Iterator<Item = (f64, f64, f64, &Place)> {
        let last = self.lost.len() - 1;
        let left = 1.0 - self.lost.iter().sum::<f64>();
        let inside = (0..=last).map(|i| {
            (
                i as f64 + 0.5,
                self.middle_s[i],
                self.lost[i],
                &self.next[i],
            )
        });
        let beyond = (
            last as f64 + 1.0,
            self.time_s[last + 1],
            left,
            &self.next[last],
        );
        inside.chain(std::iter::once(beyond))
    }
}

struct Place {
    row: usize,
    part: f64,
}

/// How much less than a fluid's the window is on average, packets, since Linux counts whole ones: a step
/// lags behind its slope by a half, and the window after a loss is rounded down (from 7 packets Reno goes to 3,
/// CUBIC to 4).
fn whole_packets(cc: Cc) -> f64 {
    match cc {
        Cc::Reno => 0.5 + 0.25,
        Cc::Cubic => 0.5 + 0.45,
        Cc::Other => 0.0,
    }
}

/// A flow after a loss: the packets in flight (one round trip, in which further losses are the same event),
/// recovery (one round trip at the reduced window), and avoidance.
pub(super) struct Recovering {
    /// When the lost packet has been sent again.
    pub(super) repair_s: f64,
    under_way: f64,
    in_recovery: f64,
    recovery_s: f64,
    avoidance: Avoidance,
}

impl Recovering {
    pub(super) fn new(path: &LatencyPath<'_>, window: f64, aim: f64) -> Self {
        let rtt_s = path.rtt_at(window);
        let epoch = Epoch::after_loss(path.cc, window.max(1.0), aim, path.rtt_s);
        let epoch = Epoch::new(
            path.cc,
            (epoch.start_packets - whole_packets(path.cc)).max(MIN_SSTHRESH - 0.5),
            epoch.w_max_packets,
            path.rtt_s,
        );
        let repair_s = if window < 2.0 {
            rtt_s + RTO_MIN_S
        } else if window < FAST_RETRANSMIT_WINDOW {
            // RACK waits a quarter of the round trip for what may be reordered (RFC 8985)
            1.25 * rtt_s
        } else {
            rtt_s
        };
        let start = epoch.start_packets;
        let recovery_s = path.rtt_at(start);
        Self {
            repair_s,
            under_way: window.min(path.capacity_packets_per_s * rtt_s),
            in_recovery: (start.min(path.capacity_packets_per_s * recovery_s) - 1.0).max(0.5),
            recovery_s,
            avoidance: Avoidance::new(epoch, path.max_window_packets.max(1.0)),
        }
    }

    /// Sends `packets`: the seconds that it takes, and the cumulative hazard of losses among them.
    pub(super) fn send(&mut self, path: &LatencyPath<'_>, packets: f64) -> (f64, f64) {
        let (mut left, mut s, mut hazard) = (packets, 0.0, 0.0);
        if self.under_way > 0.0 {
            let part = (left / self.under_way).min(1.0);
            s += part * self.repair_s;
            self.repair_s *= 1.0 - part;
            left -= part * self.under_way;
            self.under_way *= 1.0 - part;
            if self.under_way < 1e-9 {
                self.under_way = 0.0;
            }
        }
        if left > 0.0 && self.in_recovery > 0.0 {
            let part = (left / self.in_recovery).min(1.0);
            s += part * self.recovery_s;
            hazard += part * self.in_recovery * path.hazard(self.avoidance.window());
            self.recovery_s *= 1.0 - part;
            left -= part * self.in_recovery;
            self.in_recovery *= 1.0 - part;
            if self.in_recovery < 1e-9 {
                self.in_recovery = 0.0;
            }
        }
        if left > 0.0 {
            // midpoint rule
            let w = self.avoidance.window().min(path.full());
            let rough_s = left * path.rtt_at(w) / w;
            let mut middle = self.avoidance;
            middle.advance(0.5 * left, 0.5 * rough_s);
            let w = middle.window().min(path.full());
            let avoid_s = left * path.rtt_at(w) / w;
            s += avoid_s;
            hazard += left * path.hazard(w);
            self.avoidance.advance(left, avoid_s);
            if self.avoidance.window() > path.full() {
                hazard = f64::INFINITY;
            }
        }
        (s, hazard)
    }

    /// The window, should the last packet sent have been lost.
    pub(super) fn window_at_loss(&self) -> f64 {
        self.avoidance.window()
    }

    pub(super) fn w_max(&self) -> f64 {
        self.avoidance.w_max()
    }
}

/// The windows at which a first loss may be noticed: the least and the largest that matter.
fn windows_at_losses(cells: &[Cell], hazards: &[f64]) -> (f64, f64) {
    let (mut survival, mut least, mut most) = (1.0_f64, f64::INFINITY, 1.0_f64);
    for (cell, hazard) in cells.iter().zip(hazards) {
        if cell.overflows {
            survival = 0.0;
        } else {
            survival *= (-hazard * cell.packets).exp();
        }
        most = most.max(cell.at_loss);
        if survival < 1.0 - UNLIKELY.0 {
            least = least.min(cell.at_loss);
        }
        if survival < UNLIKELY.1 {
            break;
        }
    }
    (least.min(most), most)
}

/// Packets from one loss to the next, and the window there, after a few losses at which hazard has
/// added up to one; no more packets than the transfer has.
fn typical_loss(path: &LatencyPath<'_>, least: f64, packets: f64) -> (f64, f64) {
    let (mut window, mut gap) = (least.min(INITIAL_WINDOW), packets);
    for _ in 0..5 {
        let mut flow = Recovering::new(path, window, 0.0);
        let (mut sent, mut hazard) = (0.0, 0.0);
        while hazard < 1.0 && sent < packets {
            let step = flow.window_at_loss().max(0.2 * sent);
            hazard += flow.send(path, step).1;
            sent += step;
        }
        let next = flow.window_at_loss().min(path.full().max(1.0));
        (gap, window) = (sent, next);
        if sent >= packets {
            break;
        }
    }
    (gap, window)
}
