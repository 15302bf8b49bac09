//! What the forecaster takes of each record.

use super::forecaster::{Forecaster, SILENCE_S};
use super::notes::Note;
use super::types::Observation;
use crate::cold_start::Sibling;
use crate::types::{ForecastError, Quantity};
use pathcast_analysis::rtt::RttSource;
use pathcast_analysis::series::{MAX_CWND_PACKETS, Series, SeriesError};

/// The round-trip time is averaged over this long, and the newest holds as long where records lack it, seconds.
const SRTT_MEMORY_S: f64 = 5.0;

impl Forecaster {
    /// Takes the counter of packets sent again of the record that [`Forecaster::observe`] takes next; from then on
    /// losses are what it counts.
    pub fn count(&mut self, time_s: f64, sent_again: f64) {
        self.detector.count(time_s, sent_again);
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// [`ForecastError::Record`] names the record (counted from 0) that is not finite, not positive
    /// or out of order; it is then not taken.
    pub fn observe(&mut self, record: &Observation) -> Result<(), ForecastError> {
        let record = &self.mended(record)?;
        let t = record.time_s;
        self.interleaving.push(record.cwnd_packets);
        if self.last.is_none() {
            self.start_s = t;
        }
        if record.snd_nxt_packets.is_some() && self.ticks == 0 {
            self.quantity = Quantity::PacketsPerS;
        }
        // samples end at whole seconds after the first record; a record at the end still belongs to it
        self.tick_until(t, false);
        if let Some(srtt_s) = record.srtt_s
            && self.rtt_source != RttSource::Given
        {
            // the law needs the typical round trip: a slow average of the kernel's quick one
            let keep = if self.rtt_source == RttSource::Srtt {
                (-(t - self.srtt_at_s) / SRTT_MEMORY_S).exp()
            } else {
                0.0
            };
            self.rtt_s = keep * self.rtt_s + (1.0 - keep) * srtt_s;
            self.rtt_source = RttSource::Srtt;
            self.detector.set_rtt_s(self.rtt_s);
        }
        if self.ticks == 0 && self.known_s == 0.0 && self.quantity == Quantity::PacketsPerS {
            // until seconds tell what a window is worth
            self.reward.per_packet = 1.0 / self.rtt_s;
        }
        if let Some(srtt_s) = record.srtt_s {
            self.srtt_at_s = t;
            self.least_srtt_s = self.least_srtt_s.min(srtt_s);
        }
        if (self.detector).observe(t, record.cwnd_packets, record.snd_nxt_packets) {
            self.notes.add(Note::IdleRestart);
        }
        let level = self.detector.level_packets();
        if let Some(last) = self.last
            && t - last.time_s <= SILENCE_S
        {
            let age_s = self
                .detector
                .last_loss_s()
                .map_or(f64::INFINITY, |loss| t - loss);
            let packets = self.last_level * (t - last.time_s) / self.rtt_s;
            // during recovery, further losses are the same event: no exposure
            if age_s >= self.rtt_s {
                self.hazard.sent(self.last_level, packets, age_s);
            }
        }
        let losses = self.losses;
        self.count_losses();
        self.follow_changes(record, self.losses.saturating_sub(losses));
        self.range = (self.range.0.min(level), self.range.1.max(level));
        self.cwnd.push(t, record.cwnd_packets);
        if !self.cc.has_law() {
            self.cycle.observe(t, record.cwnd_packets);
        }
        self.snd_nxt.push(t, record.snd_nxt_packets);
        if let Some(packets) = record.snd_nxt_packets {
            self.bursts.observe(t, packets, self.rtt_s);
            (self.as_sibling)
                .get_or_insert_with(|| Sibling::new(self.cc, self.start_s, packets))
                .observe(t - self.start_s, packets, self.least_srtt_s);
        }
        if matches!(self.rtt_source, RttSource::Assumed | RttSource::Estimated)
            && self
                .changes
                .back()
                .is_none_or(|change| change.1 != record.cwnd_packets)
        {
            self.changes.push_back((t, record.cwnd_packets));
        }
        self.last_level = level;
        let before = self.last;
        self.last = Some(Observation {
            snd_nxt_packets: (record.snd_nxt_packets)
                .or(before.and_then(|before| before.snd_nxt_packets)),
            srtt_s: record.srtt_s.or(before
                .filter(|_| t - self.srtt_at_s <= SRTT_MEMORY_S)
                .and_then(|before| before.srtt_s)),
            ..*record
        });
        self.records += 1;
        Ok(())
    }

    /// Takes record `index` of a series, with what it counts as sent again.
    ///
    /// # Errors
    /// As [`Forecaster::observe`].
    pub fn observe_record(&mut self, series: &Series, index: usize) -> Result<(), ForecastError> {
        let record = Observation::of(series, index);
        if let Some(sent_again) = series.retransmits_at(index) {
            self.count(record.time_s, sent_again);
        }
        self.observe(&record)
    }

    pub(super) fn check(&self, record: &Observation) -> Result<(), SeriesError> {
        let index = self.records;
        let srtt_s = record.srtt_s.unwrap_or(1.0);
        let snd_nxt = record.snd_nxt_packets.unwrap_or(0.0);
        for (column, got) in [
            ("time_s", record.time_s),
            ("cwnd_packets", record.cwnd_packets),
            ("srtt_s", srtt_s),
            ("snd_nxt_packets", snd_nxt),
        ] {
            if !got.is_finite() {
                return Err(SeriesError::NotFinite { index, column, got });
            }
        }
        for (column, got) in [("cwnd_packets", record.cwnd_packets), ("srtt_s", srtt_s)] {
            if got <= 0.0 {
                return Err(SeriesError::NotPositive { index, column, got });
            }
        }
        if record.cwnd_packets > MAX_CWND_PACKETS {
            return Err(SeriesError::TooLarge {
                index,
                got: record.cwnd_packets,
            });
        }
        if let Some(last) = self.last {
            let before = match record.snd_nxt_packets {
                Some(_) => last.snd_nxt_packets.unwrap_or(snd_nxt),
                None => snd_nxt,
            };
            for (column, got, previous) in [
                ("time_s", record.time_s, last.time_s),
                ("snd_nxt_packets", snd_nxt, before),
            ] {
                if got < previous {
                    return Err(SeriesError::Unsorted {
                        index,
                        column,
                        got,
                        previous,
                    });
                }
            }
        }
        Ok(())
    }

    /// Brings the hazard's losses in line with the detector's, which may withdraw the newest.
    fn count_losses(&mut self) {
        let newest = self
            .detector
            .losses()
            .last()
            .map(|loss| (loss.time_s, loss.cwnd_packets));
        let newest_s = newest.map_or(f64::NEG_INFINITY, |loss| loss.0);
        while let Some(&(time_s, cwnd, age_s)) = self.counted.back()
            && time_s > newest_s
        {
            self.hazard.not_lost(cwnd, age_s);
            self.losses -= 1;
            self.avoidance_losses = self.avoidance_losses.min(self.losses);
            self.counted.pop_back();
        }
        let counted_s = self.counted.back().map_or(f64::NEG_INFINITY, |loss| loss.0);
        if let Some((time_s, cwnd)) = newest
            && time_s > counted_s
        {
            let age_s = time_s - counted_s;
            self.hazard.lost(cwnd, age_s);
            self.losses += 1;
            self.avoidance_losses += u32::from(!self.detector.lost_in_slow_start());
            self.counted.push_back((time_s, cwnd, age_s));
            if self.counted.len() > 4 {
                self.counted.pop_front();
            }
        }
    }
}
