//! Proportional rate reduction: how to get from the old window down to ssthresh during recovery
//! (RFC 6937, with the slow-start bound, as Linux does).

/// One recovery's books, in packets.
#[derive(Clone, Debug)]
pub struct ProportionalRateReduction {
    ssthresh: u64,
    prior_cwnd: u64,
    delivered: u64,
    sent: u64,
}

impl ProportionalRateReduction {
    /// Recovery begins with window `prior_cwnd` and is to end at `ssthresh`.
    pub fn new(prior_cwnd: f64, ssthresh: f64) -> Self {
        Self {
            ssthresh: ssthresh as u64,
            prior_cwnd: (prior_cwnd as u64).max(1),
            delivered: 0,
            sent: 0,
        }
    }

    /// A packet was sent, new or again.
    #[inline]
    pub fn on_send(&mut self) {
        self.sent += 1;
    }

    /// The window after an acknowledgment that delivered `delivered` packets and left `in_flight`;
    /// `progress`: it moved the cumulative acknowledgment and showed no new loss.
    pub fn cwnd(&mut self, delivered: u64, in_flight: u64, progress: bool) -> u64 {
        self.delivered += delivered;
        let allowed = if in_flight > self.ssthresh {
            // RFC 6937: CEIL(prr_delivered * ssthresh / RecoverFS) - prr_out
            (self.ssthresh * self.delivered)
                .div_ceil(self.prior_cwnd)
                .saturating_sub(self.sent)
        } else {
            // slow start back up to ssthresh
            let limit = self.delivered.saturating_sub(self.sent).max(delivered);
            (limit + u64::from(progress)).min(self.ssthresh - in_flight)
        };
        // the first retransmission leaves immediately
        in_flight + allowed.max(u64::from(self.sent == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_100_comes_down_to_70_in_one_round_trip() {
        let mut prr = ProportionalRateReduction::new(100.0, 70.0);
        let mut in_flight = 96u64; // three SACKed, one lost
        let mut sent = 0;
        for _ in 0..96 {
            in_flight -= 1;
            let cwnd = prr.cwnd(1, in_flight, false);
            while in_flight < cwnd {
                prr.on_send();
                in_flight += 1;
                sent += 1;
            }
        }
        assert!((66..=70).contains(&in_flight), "{in_flight}");
        assert!((66..=70).contains(&sent), "{sent}");
    }

    #[test]
    fn after_many_losses_it_climbs_back_to_ssthresh() {
        let mut prr = ProportionalRateReduction::new(100.0, 50.0);
        let mut in_flight = 10u64; // 60 lost together
        for _ in 0..60 {
            in_flight -= 1;
            let cwnd = prr.cwnd(1, in_flight, true);
            assert!(cwnd <= 50);
            while in_flight < cwnd {
                prr.on_send();
                in_flight += 1;
            }
        }
        assert_eq!(in_flight, 50);
    }
}
