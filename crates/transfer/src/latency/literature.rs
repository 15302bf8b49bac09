//! The literature's times for a transfer, by rate: `RTT x N / (B x RTT)`, that is packets over rate.
//!
//! Each gives one number, without uncertainty. All get the same facts about the path, including the link's
//! rate, and their times have one definition, that of [`Until`]. Rounds begin with a request and end with
//! its answer. No time is shorter than the link alone allows, because a packet must cross the path before
//! it is delivered, even where a model counts a fraction of a round.

use serde::Serialize;

use super::{LatencyPath, Loss, Until};
use pathcast_forecast::econ;
use pathcast_forecast::formulas::{self, PathNumbers};

/// The literature's times for a new connection, seconds, its handshake left aside. NaN where the congestion control
/// has no window law that they could be of.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Literature {
    /// Cardwell 2000, with the rate of PFTK for what slow start leaves.
    pub cardwell_s: f64,
    /// The paper's slow-start model (equation 4) as a rate for the whole transfer (section 4.2).
    pub econ_s: f64,
    /// A round trip and packets over the rate of PFTK (Padhye 1998).
    pub pftk_s: f64,
    /// A round trip and packets over the link's rate: the least that physics allows; infinitely fast if the link's
    /// rate is not known.
    pub link_s: f64,
}

/// All of them for a new connection of `packets` packets, from the first that is sent (the request, for
/// [`Until::Answered`]) until `until`.
pub fn new_connection(
    path: &LatencyPath<'_>,
    packets: f64,
    initial_window: f64,
    until: Until,
) -> Literature {
    let numbers = path_numbers(path, initial_window);
    let link_s = path.rtt_s + packets / path.capacity_packets_per_s;
    // what a request and its answer's last byte take, less what `until` leaves out
    let less_s = match until {
        Until::Sent => path.rtt_s,
        Until::Arrived => 0.5 * path.rtt_s,
        Until::Answered => 0.0,
    };
    let answered = |s: f64| {
        if path.cc.has_law() {
            s.max(link_s) - less_s
        } else {
            f64::NAN
        }
    };
    Literature {
        cardwell_s: answered(formulas::cardwell(&numbers, packets, initial_window, 2.0)),
        econ_s: answered(econ_new(path, packets, initial_window)),
        pftk_s: answered(
            path.rtt_s + packets / formulas::pftk(&numbers).min(path.capacity_packets_per_s),
        ),
        link_s: link_s - less_s,
    }
}

/// The paper's latency of a running flow: packets over ECON's rate from its window now, seconds.
pub fn econ_mid_flow(path: &LatencyPath<'_>, cwnd_packets: f64, packets: f64) -> f64 {
    let rate = econ::congestion_avoidance(path.cc, cwnd_packets, path.rtt_s, |w| path.loss.at(w))
        .rate_packets_per_s;
    packets / rate.min(path.capacity_packets_per_s)
}

/// The paper's latency of a new flow: packets over the rate of its slow start, seconds. Slow start ends
/// with a loss, or with the transfer.
pub fn econ_new(path: &LatencyPath<'_>, packets: f64, initial_window: f64) -> f64 {
    // the round that sends the last packet is the last: 10 + 20 + ... up to its window
    let rounds = (packets / initial_window + 1.0).log2().ceil().max(1.0);
    let until = (initial_window * (rounds - 1.0).exp2()).min(path.max_window_packets);
    let model = econ::slow_start(initial_window, until, path.rtt_s, |w| path.loss.at(w));
    packets / model.rate_packets_per_s.min(path.capacity_packets_per_s)
}

/// Packets over the rate of PFTK, seconds.
pub fn pftk(path: &LatencyPath<'_>, packets: f64) -> f64 {
    let rate = formulas::pftk(&path_numbers(path, super::INITIAL_WINDOW));
    packets / rate.min(path.capacity_packets_per_s)
}

/// What the formulas take; of a curve, the loss at the first window. Linux acknowledges every second
/// packet but counts bytes, which is growth as with one acknowledgment a packet.
fn path_numbers(path: &LatencyPath<'_>, window: f64) -> PathNumbers {
    let loss = match path.loss {
        Loss::Constant(p) => p,
        Loss::Curve(curve) => match (curve.losses, curve.packets) {
            (0, _) => curve.loss_probability(window),
            (losses, packets) => f64::from(losses) / packets,
        },
        Loss::Hazard(hazard) => hazard.losses() / hazard.packets().max(1.0),
    };
    PathNumbers {
        packets_per_ack: 1.0,
        // what keeps the link busy is as much as a window can use
        max_window_packets: path.max_window_packets.min(path.bdp().max(1.0)),
        ..PathNumbers::new(path.rtt_s, loss.clamp(0.0, 0.99))
    }
}
