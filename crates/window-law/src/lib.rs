//! Congestion windows as pure functions of state and time.

use serde::{Deserialize, Serialize};

/// CUBIC's scaling constant, packets/s^3 (RFC 9438, section 5).
pub const CUBIC_C: f64 = 0.4;
/// CUBIC's multiplicative decrease factor (RFC 9438, section 4.6).
pub const CUBIC_BETA: f64 = 0.7;
/// Reno's multiplicative decrease factor (RFC 5681, section 3.1).
pub const RENO_BETA: f64 = 0.5;
/// Packets a round trip that give Reno's mean window with CUBIC's decrease (RFC 9438, section 4.3).
pub const RENO_FRIENDLY_SLOPE: f64 = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);

/// CUBIC's `K`, seconds from the beginning of an epoch at `start_packets` to its plateau at `w_max_packets`
/// (RFC 9438, equation 2).
pub fn cubic_k_s(w_max_packets: f64, start_packets: f64) -> f64 {
    libm::cbrt((w_max_packets - start_packets) / CUBIC_C)
}

/// How far CUBIC's window is beyond its plateau, packets, `after_k_s` seconds after it (RFC 9438, equation 1):
/// `C (t - K)^3`, less than 0 before.
#[inline]
pub const fn cubic_beyond(after_k_s: f64) -> f64 {
    CUBIC_C * after_k_s * after_k_s * after_k_s
}

/// The congestion control, as far as a window law is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cc {
    /// RFC 9438, with fast convergence and the Reno-friendly region, as Linux has it.
    Cubic,
    /// RFC 5681 congestion avoidance: one packet per round trip.
    Reno,
    /// Any other, such as BBR: no window law is known here, and the window counts as staying what it is.
    Other,
}

impl Cc {
    /// What the window is multiplied by on a loss. Of [`Cc::Other`] it is not known: its falls are looked for as
    /// CUBIC's are.
    pub fn beta(self) -> f64 {
        match self {
            Self::Cubic | Self::Other => CUBIC_BETA,
            Self::Reno => RENO_BETA,
        }
    }

    /// The name, as the kernel and the command line spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Reno => "reno",
            Self::Other => "other",
        }
    }

    /// Whether its window law is known.
    pub fn has_law(self) -> bool {
        self != Self::Other
    }

    /// The window law of a congestion control by the name that the kernel, a QUIC stack or the simulator gives it
    /// (`cubic`, `cubic-hystart++`, `quic-cubic`, `bpf_cubic`, `reno`, `NewReno`); [`Cc::Other`] for all others.
    pub fn of(name: &str) -> Self {
        let name = name.trim().to_ascii_lowercase();
        let plain = (["quic-", "bpf-", "bpf_"].iter())
            .find_map(|prefix| name.strip_prefix(prefix))
            .unwrap_or(&name);
        match plain {
            "cubic" => Self::Cubic,
            "reno" | "newreno" | "new_reno" | "new-reno" => Self::Reno,
            _ if plain.starts_with("cubic-") => Self::Cubic,
            _ => Self::Other,
        }
    }

    /// As [`Cc::of`]; `None` for a CC without a known window law.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(Self::of(name)).filter(|cc| cc.has_law())
    }
}

/// One congestion-avoidance epoch: everything that the window depends on until the next loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epoch {
    /// The window law.
    pub cc: Cc,
    /// Window at the start of the epoch, packets.
    pub start_packets: f64,
    /// CUBIC's `Wmax`, packets, after fast convergence. Reno does not use it.
    pub w_max_packets: f64,
    /// CUBIC's `K`, seconds. Reno does not use it.
    pub k_s: f64,
    /// Round-trip time, seconds.
    pub rtt_s: f64,
}

impl Epoch {
    /// An epoch that starts at `start_packets` and aims at `w_max_packets`.
    /// Where the start is above the aim, CUBIC starts on its convex branch (`K = 0`), as Linux does.
    pub fn new(cc: Cc, start_packets: f64, w_max_packets: f64, rtt_s: f64) -> Self {
        let w_max_packets = w_max_packets.max(start_packets);
        Self {
            cc,
            start_packets,
            w_max_packets,
            k_s: cubic_k_s(w_max_packets, start_packets),
            rtt_s,
        }
    }

    /// The epoch that follows a loss at `loss_packets`, where `aim_packets` was the `Wmax` before.
    pub fn after_loss(cc: Cc, loss_packets: f64, aim_packets: f64, rtt_s: f64) -> Self {
        let start = (loss_packets * cc.beta()).max(1.0);
        Self::new(
            cc,
            start,
            fast_convergence(loss_packets, aim_packets),
            rtt_s,
        )
    }

    /// Window `t_s` seconds after the start of the epoch, packets.
    ///
    /// CUBIC: the greater of the cubic and the Reno-friendly window; Reno: one packet per RTT.
    pub fn window_packets(&self, t_s: f64) -> f64 {
        match self.cc {
            Cc::Other => self.start_packets,
            Cc::Reno => self.start_packets + t_s / self.rtt_s,
            Cc::Cubic => self.cubic_packets(t_s).max(self.reno_friendly_packets(t_s)),
        }
    }

    /// CUBIC's window by the cubic function alone (RFC 9438, equation 1).
    pub fn cubic_packets(&self, t_s: f64) -> f64 {
        cubic_beyond(t_s - self.k_s) + self.w_max_packets
    }

    /// The window that Reno with CUBIC's decrease would have. As Linux has it: the slope stays the small
    /// one where RFC 9438 lets it rise to Reno's own past the last maximum.
    pub fn reno_friendly_packets(&self, t_s: f64) -> f64 {
        self.start_packets + RENO_FRIENDLY_SLOPE * t_s / self.rtt_s
    }
}

/// CUBIC's `Wmax` after a loss at `loss_packets`, when it was `aim_packets` before.
///
/// A flow that loses below its former `Wmax` gives way to newcomers (RFC 9438, section 4.7;
/// Linux does so by default).
pub fn fast_convergence(loss_packets: f64, aim_packets: f64) -> f64 {
    if loss_packets < aim_packets {
        loss_packets * (1.0 + CUBIC_BETA) / 2.0
    } else {
        loss_packets
    }
}

/// Window after `t_s` seconds of slow start from `start_packets`: doubled each RTT, up to `ssthresh_packets`.
pub fn slow_start_packets(start_packets: f64, t_s: f64, rtt_s: f64, ssthresh_packets: f64) -> f64 {
    (start_packets * (t_s / rtt_s).exp2()).min(ssthresh_packets.max(start_packets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quic_and_the_simulator_s_variants_have_the_law_of_their_name() {
        for name in [
            "cubic",
            "quic-cubic",
            "cubic-rfc9438",
            "cubic-hystart++",
            "Cubic",
            "bpf_cubic",
        ] {
            assert_eq!(Cc::from_name(name), Some(Cc::Cubic), "{name}");
        }
        for name in ["reno", "quic-reno", "NewReno", "new_reno"] {
            assert_eq!(Cc::from_name(name), Some(Cc::Reno), "{name}");
        }
        for name in [
            "bbr", "bbr3", "quic-bbr", "vegas", "copa", "fixed:10", "cubicle", "",
        ] {
            assert_eq!(
                (Cc::of(name), Cc::from_name(name)),
                (Cc::Other, None),
                "{name}"
            );
        }
    }

    #[test]
    fn cubic_starts_at_seven_tenths_and_is_back_at_wmax_after_k() {
        let epoch = Epoch::after_loss(Cc::Cubic, 1000.0, 0.0, 0.1);
        // K = cbrt(1000 * 0.3 / 0.4) = 9.0856 s (RFC 9438, Eq. 2)
        assert!((epoch.k_s - 9.085_603).abs() < 1e-6);
        assert!((epoch.window_packets(0.0) - 700.0).abs() < 1e-9);
        assert!((epoch.window_packets(epoch.k_s) - 1000.0).abs() < 1e-9);
        assert!((epoch.window_packets(epoch.k_s + 5.0) - 1050.0).abs() < 1e-9);
    }

    #[test]
    fn cubic_is_reno_friendly_on_a_small_bdp() {
        let epoch = Epoch::after_loss(Cc::Cubic, 20.0, 0.0, 0.02);
        // alpha = 3 * 0.3 / 1.7 per RTT, as slow past the former window
        for trips in [10.0, 50.0] {
            let window = epoch.window_packets(trips * 0.02);
            assert!((window - (14.0 + trips * 0.9 / 1.7)).abs() < 1e-9);
        }
    }

    #[test]
    fn a_loss_below_wmax_makes_room() {
        assert_eq!(fast_convergence(100.0, 90.0), 100.0);
        assert_eq!(fast_convergence(100.0, 120.0), 85.0);
    }

    #[test]
    fn reno_halves_and_adds_one_per_round_trip() {
        let epoch = Epoch::after_loss(Cc::Reno, 100.0, 0.0, 0.1);
        assert_eq!(epoch.window_packets(0.0), 50.0);
        assert!((epoch.window_packets(2.0) - 70.0).abs() < 1e-9);
    }

    #[test]
    fn slow_start_doubles_until_ssthresh() {
        assert!((slow_start_packets(10.0, 0.3, 0.1, 1e9) - 80.0).abs() < 1e-9);
        assert_eq!(slow_start_packets(10.0, 0.3, 0.1, 64.0), 64.0);
    }
}
