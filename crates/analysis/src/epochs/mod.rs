//! Finds loss epochs and losses from the window alone.
//!
//! A congestion-avoidance epoch is a growth of the window that ends when the window falls. Three
//! patterns in real traces are not losses and must not end an epoch:
//! - *ripples*: the window steps down by a packet and up again;
//! - *excursions*: one to three records far away, then back (a window moderated or borrowed
//!   briefly);
//! - *undone losses*: the kernel finds that a retransmission was spurious and restores the window.
//!
//! The fall itself may take a round trip, packet by packet (rate halving, PRR), with ripples on the
//! way. Epochs between those are epochs of the sawtooth, but one loss event.

mod classify;
mod detector;
mod moves;
mod sawtooth;
mod standstill;
mod state;
mod types;

pub use detector::EpochDetector;
pub use types::{Detection, Epoch, FlowState, Loss, Phase};

use crate::series::Series;
use pathcast_window_law::Cc;

/// Finds the epochs and losses of a whole series.
///
/// ```
/// use pathcast_analysis::{Series, find_epochs};
/// use pathcast_window_law::Cc;
/// // Reno from 10 to 20 packets, again and again, one packet per 0.1 s
/// let time: Vec<f64> = (0..110).map(|i| f64::from(i) * 0.1).collect();
/// let cwnd = (0..110).map(|i| f64::from(10 + i % 11)).collect();
/// let found = find_epochs(&Series::new(time, cwnd)?, Cc::Reno, 0.1);
/// assert_eq!(found.losses.len(), 9);
/// assert_eq!(found.epochs[0].end_cwnd, 20.0);
/// # Ok::<(), pathcast_analysis::SeriesError>(())
/// ```
pub fn find_epochs(series: &Series, cc: Cc, rtt_s: f64) -> Detection {
    let mut detector = EpochDetector::new(cc, rtt_s);
    for (i, (&t, &w)) in series
        .time_s()
        .iter()
        .zip(series.cwnd_packets())
        .enumerate()
    {
        if let Some(sent_again) = series.retransmits_at(i) {
            detector.count(t, sent_again);
        }
        detector.observe(t, w, series.snd_nxt_at(i));
    }
    Detection {
        epochs: detector.epochs,
        losses: detector.losses,
    }
}
