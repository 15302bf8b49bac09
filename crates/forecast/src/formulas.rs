//! The literature's formulas: what a flow's rate or a transfer's time would be if a path were known by
//! a few numbers.
//!
//! `p` is the probability that a packet begins a loss event, the same whatever the window: what ECON
//! replaces by a curve over the window. Rates are of packets sent, in packets/s. Sources are named at
//! each; where a paper and its common copies differ, it says so.

/// A path and its TCP, by a few numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathNumbers {
    /// Round-trip time, seconds, > 0.
    pub rtt_s: f64,
    /// Probability that a packet begins a loss event, 0 to 1.
    pub loss: f64,
    /// Packets that one acknowledgment covers: 2 with delayed acknowledgments, 1 without.
    pub packets_per_ack: f64,
    /// Retransmission timeout before any back-off, seconds.
    pub rto_s: f64,
    /// The largest window, packets; infinite if nothing limits it.
    pub max_window_packets: f64,
}

impl PathNumbers {
    /// A path with Linux's TCP, whose acknowledgments are delayed and whose timeout is twice the
    /// round-trip time, at least 0.2 s.
    pub fn new(rtt_s: f64, loss: f64) -> Self {
        Self {
            rtt_s,
            loss,
            packets_per_ack: 2.0,
            rto_s: (2.0 * rtt_s).max(0.2),
            max_window_packets: f64::INFINITY,
        }
    }

    /// The rate that the largest window allows, packets/s; infinite without a limit.
    fn window_rate(&self) -> f64 {
        self.max_window_packets / self.rtt_s
    }
}

/// Reno's rate by the sawtooth alone (Mathis 1997): `sqrt(3 / (2 b)) / (RTT sqrt(p))`, at most
/// what the largest window allows. With an acknowledgment a packet the constant is 1.22; Mathis' 1.31
/// is that of losses that come at random.
pub fn mathis(path: &PathNumbers) -> f64 {
    let constant = (1.5 / path.packets_per_ack).sqrt();
    (constant / (path.rtt_s * path.loss.sqrt())).min(path.window_rate())
}

/// Reno's rate with fast retransmissions only (Padhye 1998): what Cao's paper calls PFTK.
pub fn pftk_without_timeouts(path: &PathNumbers) -> f64 {
    let PathNumbers {
        rtt_s: r,
        loss: p,
        packets_per_ack: b,
        ..
    } = *path;
    if p == 0.0 {
        return path.window_rate();
    }
    let a = (2.0 + b) / 6.0;
    let rounds = a + (2.0 * b * (1.0 - p) / (3.0 * p) + a * a).sqrt(); // E[X]
    let rate = ((1.0 - p) / p + mean_peak_window(p, b)) / (r * (rounds + 1.0));
    rate.min(path.window_rate())
}

/// Reno's rate with timeouts and the largest window (Padhye 1998).
pub fn pftk(path: &PathNumbers) -> f64 {
    let PathNumbers {
        rtt_s: r,
        loss: p,
        packets_per_ack: b,
        rto_s: t0,
        max_window_packets: wm,
    } = *path;
    if p == 0.0 {
        return path.window_rate();
    }
    if p >= 1.0 {
        return 0.0;
    }
    let peak = mean_peak_window(p, b);
    let sent = |w: f64| (1.0 - p) / p + w + timeout_share(p, w) / (1.0 - p);
    let waiting = |w: f64| timeout_share(p, w) * t0 * backed_off(p) / (1.0 - p);
    if peak < wm {
        sent(peak) / (r * (b / 2.0 * peak + 1.0) + waiting(peak))
    } else {
        let rounds = b / 8.0 * wm + (1.0 - p) / (p * wm) + 2.0;
        sent(wm) / (r * rounds + waiting(wm))
    }
}

/// E[W], the window at a loss (Padhye 1998).
fn mean_peak_window(p: f64, b: f64) -> f64 {
    let a = (2.0 + b) / (3.0 * b);
    a + (8.0 * (1.0 - p) / (3.0 * b * p) + a * a).sqrt()
}

/// Q(w): which part of the losses at a window of `w` packets end in a timeout (Padhye 1998).
fn timeout_share(p: f64, w: f64) -> f64 {
    let kept = |n: f64| (n * (-p).ln_1p()).exp(); // (1 - p)^n
    let three = 1.0 - kept(3.0);
    let share = three * (1.0 + kept(3.0) * (1.0 - kept((w - 3.0).max(0.0)))) / (1.0 - kept(w));
    share.clamp(0.0, 1.0)
}

/// f(p): how many first timeouts a series of timeouts lasts, each twice as long as the one before up to 64
/// times, without the factor 1/(1 - p) (Padhye 1998).
fn backed_off(p: f64) -> f64 {
    1.0 + p * (1.0 + p * (2.0 + p * (4.0 + p * (8.0 + p * (16.0 + p * 32.0)))))
}

/// PFTK without timeouts, corrected for what it counts twice when a loss is repaired (Chen 2006).
pub fn chen(path: &PathNumbers) -> f64 {
    let PathNumbers {
        rtt_s: r,
        loss: p,
        packets_per_ack: b,
        ..
    } = *path;
    if p == 0.0 {
        return path.window_rate();
    }
    let k = 3.0 * b - 2.0;
    let sent = (1.0 - p) / p + (8.0 * (1.0 - p) / (3.0 * b * p) + k * k / (9.0 * b * b)).sqrt()
        - k / (3.0 * b);
    let rounds = (2.0 * b * (1.0 - p) / (3.0 * p) + k * k / 36.0).sqrt() + (3.0 * b + 8.0) / 6.0;
    (sent / (r * rounds)).min(path.window_rate())
}

/// Reno with fast recovery and slow start after timeouts (Dunaytsev 2007, as Cao et al. used it: every
/// loss event is repaired by both).
pub fn dunaytsev(path: &PathNumbers) -> f64 {
    let PathNumbers {
        rtt_s: r,
        loss: p,
        packets_per_ack: b,
        rto_s,
        ..
    } = *path;
    if p == 0.0 {
        return path.window_rate();
    }
    let w = (8.0 / (3.0 * b * p) + 1.0).sqrt() - 1.0;
    let slow_start = (w / 2.0).log2().max(1.0);
    let time_s = r * (slow_start + b * (w / 2.0 + 1.0) + 2.0) + rto_s;
    ((1.0 / p + w) / time_s).min(path.window_rate())
}

/// CUBIC's rate under losses that come at equal distances (RFC 9438, section 5.1):
/// `(C (3 + beta) / (4 (1 - beta)))^(1/4) RTT^(3/4) / p^(3/4) / RTT`; at least that of Reno in the
/// Reno-friendly region, whose constant is 1.2 (section 5.1, after AIMD(3 (1 - beta)/(1 + beta), beta)).
pub fn rfc9438(path: &PathNumbers) -> f64 {
    use pathcast_window_law::{CUBIC_BETA, CUBIC_C};
    let shape = CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA));
    let cubic = shape.powf(0.25) * (path.rtt_s / path.loss).powf(0.75);
    let friendly = 1.2 / path.loss.sqrt();
    (cubic.max(friendly) / path.rtt_s).min(path.window_rate())
}

/// What a flow that is fair to Reno may send (TFRC, RFC 5348, section 3.1), with `t_RTO` as given and an
/// acknowledgment for `b` packets.
pub fn tfrc(path: &PathNumbers) -> f64 {
    let PathNumbers {
        rtt_s: r,
        loss: p,
        packets_per_ack: b,
        rto_s,
        ..
    } = *path;
    let sawtooth = r * (2.0 * b * p / 3.0).sqrt();
    let timeouts = rto_s * 3.0 * (3.0 * b * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p);
    (1.0 / (sawtooth + timeouts)).min(path.window_rate())
}

/// The time that a new connection takes to deliver `packets`, seconds, without its handshake (Cardwell
/// 2000, without the wait for a first delayed acknowledgment): slow start from `initial_window` packets
/// up to the first loss, what that costs, and the rest at [`pftk`]'s rate.
///
/// Cardwell lets a window grow by `1 + 1/b` a round trip; Linux counts bytes, which is growth 2.
pub fn cardwell(path: &PathNumbers, packets: f64, initial_window: f64, growth: f64) -> f64 {
    let PathNumbers {
        rtt_s: r,
        loss: p,
        rto_s,
        max_window_packets: wm,
        ..
    } = *path;
    if packets <= 0.0 {
        return 0.0;
    }
    let lost = -(packets * (-p).ln_1p()).exp_m1(); // 1 - (1 - p)^d
    // expected packets until the first loss
    let in_slow_start = match p {
        0.0 => packets,
        _ => (lost * (1.0 - p) / p + 1.0).min(packets),
    };
    // the window that these lead to, and the rounds that they take
    let peak = in_slow_start * (growth - 1.0) / growth + initial_window / growth;
    let rounds = if peak > wm {
        let upto = (growth * wm - initial_window) / (growth - 1.0);
        (wm / initial_window).ln() / growth.ln() + 1.0 + (in_slow_start - upto) / wm
    } else {
        (in_slow_start * (growth - 1.0) / initial_window + 1.0).ln() / growth.ln()
    };
    let by_timeout = if p == 0.0 {
        0.0
    } else {
        timeout_share(p, peak.min(wm))
    };
    let timeout_s = rto_s * backed_off(p) / (1.0 - p).max(f64::MIN_POSITIVE);
    let first_loss_s = lost * (by_timeout * timeout_s + (1.0 - by_timeout) * r);
    let rest = packets - in_slow_start;
    let rest_s = if rest > 0.0 { rest / pftk(path) } else { 0.0 };
    r * rounds + first_loss_s + rest_s
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Formula = fn(&PathNumbers) -> f64;
    const RENO: [Formula; 6] = [mathis, pftk_without_timeouts, pftk, chen, dunaytsev, tfrc];

    fn path(rtt_s: f64, loss: f64) -> PathNumbers {
        PathNumbers {
            packets_per_ack: 1.0,
            ..PathNumbers::new(rtt_s, loss)
        }
    }

    #[test]
    fn known_answers() {
        // seed 003: p = 1e-5 and 100 ms are 4143 packets/s by the constant 1.31
        let by_131 = mathis(&path(0.1, 1e-5)) / 1.5_f64.sqrt() * 1.31;
        assert!((by_131 - 4142.6).abs() < 0.1, "{by_131}");
        // RFC 9438, section 5.1: the mean window is 1.054 (RTT/p)^0.75
        let window = rfc9438(&path(0.1, 1e-6)) * 0.1;
        assert!(
            (window / (0.1e6_f64).powf(0.75) - 1.054).abs() < 1e-3,
            "{window}"
        );
    }

    #[test]
    fn where_losses_are_rare_all_of_reno_s_formulas_are_the_sawtooth() {
        for packets_per_ack in [1.0, 2.0] {
            let path = PathNumbers {
                packets_per_ack,
                ..PathNumbers::new(0.05, 1e-9)
            };
            for (number, formula) in RENO.iter().enumerate() {
                let ratio = formula(&path) / mathis(&path);
                assert!((ratio - 1.0).abs() < 0.01, "{number}: {ratio}");
            }
        }
    }

    #[test]
    fn the_whole_of_pftk_is_near_its_authors_own_approximation() {
        // what TFRC uses, but that there the share of timeouts is at most 1
        for p in [1e-4, 1e-3, 1e-2, 0.05] {
            for rtt_s in [0.02, 0.1, 0.3] {
                let path = path(rtt_s, p);
                let ratio = pftk(&path) / tfrc(&path);
                assert!((0.8..1.25).contains(&ratio), "{p} {rtt_s}: {ratio}");
            }
        }
    }

    #[test]
    fn without_a_loss_only_the_window_is_in_the_way() {
        for formula in RENO.iter().chain(&[rfc9438 as Formula]) {
            assert_eq!(formula(&path(0.1, 0.0)), f64::INFINITY);
            let small = PathNumbers {
                max_window_packets: 40.0,
                ..path(0.1, 0.0)
            };
            assert_eq!(formula(&small), 400.0);
        }
    }

    #[test]
    fn a_transfer_without_loss_takes_the_rounds_of_its_slow_start() {
        let path = path(0.1, 0.0);
        // 10 + 20 + 40 packets: three round trips
        assert!((cardwell(&path, 70.0, 10.0, 2.0) - 0.3).abs() < 1e-12);
        let small = PathNumbers {
            max_window_packets: 20.0,
            ..path
        };
        // 10, 20, 20: two of growth and one at the largest window
        assert!((cardwell(&small, 50.0, 10.0, 2.0) - 0.3).abs() < 1e-12);
        assert_eq!(cardwell(&path, 0.0, 10.0, 2.0), 0.0);
    }

    #[test]
    fn a_long_transfer_takes_what_its_rate_says() {
        let path = path(0.05, 0.01);
        let time_s = cardwell(&path, 1e6, 10.0, 2.0);
        assert!((time_s * pftk(&path) / 1e6 - 1.0).abs() < 0.001);
    }

    proptest! {
        #[test]
        fn more_loss_or_a_longer_path_is_never_faster(
            rtt_s in 0.001..1.0f64, p in 1e-7..0.3f64, b in 1.0..2.0f64, wm in 4.0..1e6f64,
            more in 1.0..3.0f64,
        ) {
            let path = PathNumbers {
                packets_per_ack: b,
                max_window_packets: wm,
                ..PathNumbers::new(rtt_s, p)
            };
            let lossier = PathNumbers { loss: p * more, ..path };
            let longer = PathNumbers { rtt_s: rtt_s * more, ..path };
            for formula in [mathis as Formula, pftk_without_timeouts, chen, dunaytsev, tfrc, rfc9438] {
                let rate = formula(&path);
                prop_assert!(rate.is_finite() && rate > 0.0 && rate <= wm / rtt_s * (1.0 + 1e-12));
                prop_assert!(formula(&lossier) <= rate * (1.0 + 1e-9));
                prop_assert!(formula(&longer) <= rate * (1.0 + 1e-9));
            }
            let short = cardwell(&path, 100.0, 10.0, 2.0);
            prop_assert!(short.is_finite() && short > 0.0);
            prop_assert!(cardwell(&path, 100.0 * more, 10.0, 2.0) >= short * (1.0 - 1e-9));
        }
    }
}
