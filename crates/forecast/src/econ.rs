//! ECON, the paper's throughput model, as the paper defines it (section 3.3 to 3.5, Appendix A).

use serde::Serialize;

use pathcast_window_law::{Cc, cubic_beyond, cubic_k_s};

/// Rounds after which the infinite sums stop. The paper caps them too (section 4.1) without saying
/// where; its windows are "rarely greater than a few thousands", reached well within this.
pub const MAX_ROUNDS: u32 = 10_000;
/// Probability of surviving so long that stops the sums early.
const NEGLIGIBLE: f64 = 1e-12;

/// What ECON says about one connection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Econ {
    /// E\[M\]: index of the first lost packet, from 1.
    pub expected_first_loss: f64,
    /// E\[X\]: round trips until the first loss.
    pub expected_rounds: f64,
    /// E\[N\]: packets sent in the epoch.
    pub expected_packets: f64,
    /// B: packets per second, of one connection.
    pub rate_packets_per_s: f64,
    /// Probability that no loss came before the sums stopped. It is counted as if the loss came
    /// there, so that with it > 0 the expectations are lower bounds.
    pub cut_off_mass: f64,
}

/// Throughput of congestion avoidance from `start_packets` (the paper's scwnd), equation 2.
///
/// `loss_probability(cwnd)` must be in 0..=1. The window law is the paper's: CUBIC aims at
/// `scwnd / 0.7`, without fast convergence and without the Reno-friendly region.
/// The numeric error is that of double arithmetic; where sums stopped, `cut_off_mass` says so.
///
/// ```
/// use pathcast_forecast::econ;
/// use pathcast_window_law::Cc;
/// let econ = econ::congestion_avoidance(Cc::Reno, 100.0, 0.1, |_| 1e-3);
/// assert!((econ.expected_first_loss - 1000.0).abs() < 1e-6); // E[M] = 1/p for constant p
/// ```
pub fn congestion_avoidance(
    cc: Cc,
    start_packets: f64,
    rtt_s: f64,
    loss_probability: impl Fn(f64) -> f64,
) -> Econ {
    let w_max = start_packets / cc.beta();
    let k_s = cubic_k_s(w_max, start_packets);
    let window = |round: f64| match cc {
        // cwnd_j = C ((j-1) RTT - K)^3 + scwnd/(1-beta)  (section 3.3)
        Cc::Cubic => cubic_beyond((round - 1.0) * rtt_s - k_s) + w_max,
        // cwnd_j = scwnd + j - 1  (section 3.4)
        Cc::Reno => start_packets + round - 1.0,
        Cc::Other => start_packets,
    };
    sums(window, f64::INFINITY, rtt_s, loss_probability)
}

/// Throughput of slow start from `initial_packets` until a loss or `ssthresh_packets`, equation 4.
/// Reaching the threshold is counted as the end of the phase, not as cut off: neither the packets that go out while a
/// loss is noticed nor the round trip that this takes are counted for it. So the rate without losses is the limit
/// of that with ever fewer.
pub fn slow_start(
    initial_packets: f64,
    ssthresh_packets: f64,
    rtt_s: f64,
    loss_probability: impl Fn(f64) -> f64,
) -> Econ {
    // cwnd_k = icwnd 2^(k-1)  (section 3.5)
    let window = |round: f64| initial_packets * (round - 1.0).exp2();
    sums(window, ssthresh_packets, rtt_s, loss_probability)
}

fn sums(
    window: impl Fn(f64) -> f64,
    until_packets: f64,
    rtt_s: f64,
    loss_probability: impl Fn(f64) -> f64,
) -> Econ {
    let mut survival = 1.0;
    let mut sent = 0.0;
    let mut first_loss = 0.0;
    let mut rounds = 0.0;
    let mut round = 0;
    let mut reached = false;
    while round < MAX_ROUNDS && survival > NEGLIGIBLE {
        let w = window(f64::from(round + 1)).max(1.0);
        if !w.is_finite() {
            break;
        }
        if w > until_packets {
            reached = true;
            break;
        }
        round += 1;
        let p = loss_probability(w).clamp(0.0, 1.0);
        let lost = -(w * (-p).ln_1p()).exp_m1(); // 1 - (1-p)^w
        // sum_{m=1..w} m (1-p)^(m-1) p = (1 - (1-p)^w (1 + w p)) / p  (closed form of App. A's inner sum)
        let inner = if p * w < 1e-6 {
            0.5 * w * (w + 1.0) * p // its limit; relative error below p w
        } else if p >= 1.0 {
            1.0
        } else {
            (1.0 - (1.0 - lost) * (1.0 + w * p)) / p
        };
        // E[M], E[X]  (Appendix A)
        first_loss += survival * (sent * lost + inner);
        rounds += survival * lost * f64::from(round);
        survival *= 1.0 - lost;
        sent += w;
    }
    let ended = f64::from(round);
    let left = if survival > NEGLIGIBLE { survival } else { 0.0 };
    first_loss += left * (sent + 1.0);
    rounds += left * ended.max(1.0);
    // E[X] is not whole: interpolate the window between its neighbors
    let whole = rounds.floor().max(1.0);
    let (low, high) = (window(whole), window(whole + 1.0).min(until_packets));
    let at_loss = (low + (rounds - whole) * (high - low)).max(1.0);
    // in slow start without a loss nothing is sent while one is being noticed, and no time passes
    let noticed = if reached { 1.0 - left } else { 1.0 };
    // E[N] = (E[M] - 1) + cwnd_E[X]  (Eq. 3)
    let packets = first_loss - 1.0 + noticed * at_loss;
    Econ {
        expected_first_loss: first_loss,
        expected_rounds: rounds,
        expected_packets: packets,
        // B = E[N] / ((E[X] + 1) RTT)  (Eq. 2 and 4)
        rate_packets_per_s: packets / ((rounds + noticed).max(1.0) * rtt_s),
        cut_off_mass: if reached { 0.0 } else { left },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_loss_comes_after_one_over_p_packets_if_p_is_constant() {
        for cc in [Cc::Cubic, Cc::Reno] {
            for p in [1e-2, 1e-4, 1e-6] {
                let econ = congestion_avoidance(cc, 64.0, 0.05, |_| p);
                assert!(
                    (econ.expected_first_loss * p - 1.0).abs() < 1e-6,
                    "{cc:?} {p} {econ:?}"
                );
                assert!(econ.cut_off_mass < 1e-9);
            }
        }
    }

    #[test]
    fn rounds_follow_a_geometric_law_if_the_window_is_constant() {
        // K = 0 and a window that hardly moves: a round is lost with 1-(1-p)^w
        let econ = sums(|_| 10.0, f64::INFINITY, 0.1, |_| 0.01);
        let q: f64 = 1.0 - 0.99_f64.powi(10);
        assert!((econ.expected_rounds - 1.0 / q).abs() < 1e-9);
        // B = (1/p - 1 + w) / ((1/q + 1) R)
        let rate = (100.0 - 1.0 + 10.0) / ((1.0 / q + 1.0) * 0.1);
        assert!((econ.rate_packets_per_s - rate).abs() < 1e-6);
    }

    #[test]
    fn certain_loss_is_met_at_the_first_packet() {
        let econ = congestion_avoidance(Cc::Reno, 50.0, 0.1, |_| 1.0);
        assert!((econ.expected_first_loss - 1.0).abs() < 1e-12);
        assert!((econ.expected_rounds - 1.0).abs() < 1e-12);
    }

    #[test]
    fn losses_at_one_window_only_end_the_epoch_there() {
        let econ =
            congestion_avoidance(Cc::Reno, 50.0, 0.1, |w| if w >= 100.0 { 1.0 } else { 0.0 });
        assert!((econ.expected_rounds - 51.0).abs() < 1e-9);
        let sent: f64 = (50..100).map(f64::from).sum();
        assert!((econ.expected_first_loss - (sent + 1.0)).abs() < 1e-9);
        assert!((econ.expected_packets - (sent + 100.0)).abs() < 1e-9);
    }

    #[test]
    fn what_is_cut_off_is_reported() {
        let econ = congestion_avoidance(Cc::Reno, 50.0, 0.1, |w| if w < 60.0 { 1e-3 } else { 0.0 });
        let survived = 0.999_f64.powi((50..60).sum::<i32>());
        assert!((econ.cut_off_mass - survived).abs() < 1e-9);
        assert!(
            (congestion_avoidance(Cc::Cubic, 50.0, 0.1, |_| 0.0).cut_off_mass - 1.0).abs() < 1e-12
        );
    }

    #[test]
    fn slow_start_without_loss_sends_the_doublings() {
        let econ = slow_start(10.0, 100.0, 0.1, |_| 0.0);
        // rounds of 10, 20, 40, 80 packets
        assert!((econ.expected_packets - 150.0).abs() < 1e-9);
        assert!((econ.expected_rounds - 4.0).abs() < 1e-9);
        assert_eq!(econ.cut_off_mass, 0.0);
    }

    #[test]
    fn slow_start_s_rate_is_continuous_where_losses_vanish() {
        for until in [10.0, 100.0, 5000.0] {
            let rate = |p: f64| slow_start(10.0, until, 0.1, |_| p).rate_packets_per_s;
            let none = rate(0.0);
            for p in [1e-15, 1e-12, 1e-9, 1e-8] {
                assert!(
                    (rate(p) / none - 1.0).abs() < 2e4 * p,
                    "{until}, {p}: {} {none}",
                    rate(p)
                );
            }
        }
        // 10 + 20 + 40 + 80 packets in four round trips
        assert!((slow_start(10.0, 100.0, 0.1, |_| 0.0).rate_packets_per_s - 375.0).abs() < 1e-9);
    }

    #[test]
    fn tiny_p_meets_its_limit() {
        let above = congestion_avoidance(Cc::Reno, 50.0, 0.1, |_| 1.01e-6 / 50.0);
        let below = congestion_avoidance(Cc::Reno, 50.0, 0.1, |_| 0.99e-6 / 50.0);
        let ratio = above.expected_packets / below.expected_packets;
        assert!((0.95..1.0).contains(&ratio), "{ratio}");
    }
}
