//! The validated input of every model: one flow's congestion window over time.

mod integral;
mod interleaving;

use thiserror::Error;

pub use integral::Integral;
pub use interleaving::Interleaving;

use interleaving::{MIXED_PART, MIXED_RECORDS};

/// The largest plausible window, packets: 100 Gbit/s over 120 ms.
pub const MAX_CWND_PACKETS: f64 = 1_048_576.0;

/// Why a cwnd series was refused. `index` counts records from 0, so that a file reader can map it
/// to a line.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum SeriesError {
    /// No records at all.
    #[error("the series is empty, expected at least two records")]
    Empty,
    /// One record says nothing about time.
    #[error("the series has one record, expected at least two")]
    OneRecord,
    /// A column is longer or shorter than `time_s`.
    #[error("column {column} has {got} records, expected {wanted} as in time_s")]
    Length {
        /// The name of the column.
        column: &'static str,
        /// Records in it.
        got: usize,
        /// Records in `time_s`.
        wanted: usize,
    },
    /// NaN or an infinity.
    #[error("record {index}: {column} is {got}, must be a finite number")]
    NotFinite {
        /// Index of the record, from 0.
        index: usize,
        /// The name of the column.
        column: &'static str,
        /// The value found.
        got: f64,
    },
    /// A window or a round-trip time that is zero or negative.
    #[error("record {index}: {column} is {got}, must be > 0")]
    NotPositive {
        /// Index of the record, from 0.
        index: usize,
        /// The name of the column.
        column: &'static str,
        /// The value found.
        got: f64,
    },
    /// An implausibly large window, probably in bytes.
    #[error(
        "record {index}: cwnd_packets is {got}, must be <= {MAX_CWND_PACKETS} (is it in bytes?)"
    )]
    TooLarge {
        /// Index of the record, from 0.
        index: usize,
        /// The value found.
        got: f64,
    },
    /// A value below the previous one, in a column that must not decrease.
    #[error("record {index}: {column} is {got}, must be >= {previous} as in the record before")]
    Unsorted {
        /// Index of the record, from 0.
        index: usize,
        /// The name of the column.
        column: &'static str,
        /// The value found.
        got: f64,
        /// The previous value.
        previous: f64,
    },
    /// No record has a window.
    #[error("no record has a cwnd_packets, expected at least one")]
    NoWindow,
    /// Records of several flows in one series.
    #[error(
        "{part:.0} % of the records jump back to a window seen just before: these are records of several \
         flows, each must be given by itself"
    )]
    MixedFlows {
        /// Percentage of such records.
        part: f64,
    },
    /// All records have the same time.
    #[error("all records are at {time_s} s, the series must last longer than 0 s")]
    NoDuration {
        /// The common time.
        time_s: f64,
    },
}

/// One flow's congestion window, piecewise constant between records.
///
/// Real traces record only changes, so a value holds until the next record. Times may repeat
/// (several changes within one clock tick) but never decrease.
///
/// NaN marks a missing value in every column but `time_s`; it does not affect other records. A
/// missing window takes the previous value, or the first known one at the start.
/// `docs/reference/evaluation.md` says how the models treat the other columns. A column of only NaN
/// counts as absent.
///
/// ```
/// use pathcast_analysis::Series;
/// let series = Series::new(vec![0.0, 1.0, 2.0], vec![10.0, 20.0, 40.0])?;
/// assert_eq!(series.duration_s(), 2.0);
/// # Ok::<(), pathcast_analysis::SeriesError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    time_s: Vec<f64>,
    cwnd_packets: Vec<f64>,
    snd_nxt_packets: Option<Vec<f64>>,
    srtt_s: Option<Vec<f64>>,
    retransmits: Option<Vec<f64>>,
}

impl Series {
    /// A series from times in seconds and windows in packets.
    ///
    /// # Errors
    /// [`SeriesError`] for the first record that is not finite, not positive or out of order.
    pub fn new(time_s: Vec<f64>, cwnd_packets: Vec<f64>) -> Result<Self, SeriesError> {
        let series = Self::of_one_flow(time_s, cwnd_packets)?;
        let mut interleaving = Interleaving::default();
        for &cwnd in &series.cwnd_packets {
            interleaving.push(cwnd);
        }
        let part = interleaving.part_of_all();
        if part > MIXED_PART && series.len() >= MIXED_RECORDS {
            return Err(SeriesError::MixedFlows { part: 100.0 * part });
        }
        Ok(series)
    }

    /// As [`Series::new`], for records that are known to belong to one flow: windows may jump back
    /// and forth.
    ///
    /// # Errors
    /// As [`Series::new`], without [`SeriesError::MixedFlows`].
    pub fn of_one_flow(time_s: Vec<f64>, mut cwnd_packets: Vec<f64>) -> Result<Self, SeriesError> {
        match time_s.len() {
            0 => return Err(SeriesError::Empty),
            1 => return Err(SeriesError::OneRecord),
            _ => {}
        }
        same_length("cwnd_packets", &cwnd_packets, time_s.len())?;
        if let Some(index) = time_s.iter().position(|t| !t.is_finite()) {
            return Err(SeriesError::NotFinite {
                index,
                column: "time_s",
                got: time_s[index],
            });
        }
        sorted("time_s", &time_s)?;
        positive("cwnd_packets", &cwnd_packets)?;
        hold(&mut cwnd_packets)?;
        if let Some(index) = cwnd_packets.iter().position(|&w| w > MAX_CWND_PACKETS) {
            return Err(SeriesError::TooLarge {
                index,
                got: cwnd_packets[index],
            });
        }
        if time_s[0] == time_s[time_s.len() - 1] {
            return Err(SeriesError::NoDuration { time_s: time_s[0] });
        }
        Ok(Self {
            time_s,
            cwnd_packets,
            snd_nxt_packets: None,
            srtt_s: None,
            retransmits: None,
        })
    }

    /// Adds the next sequence number, in packets, cumulative and unwrapped; NaN where missing. With
    /// it, the ground truth is throughput instead of the mean window.
    ///
    /// # Errors
    /// [`SeriesError`] for a wrong length, a value that is not finite, or one that decreases.
    pub fn with_snd_nxt(mut self, snd_nxt_packets: Vec<f64>) -> Result<Self, SeriesError> {
        same_length("snd_nxt_packets", &snd_nxt_packets, self.time_s.len())?;
        finite("snd_nxt_packets", &snd_nxt_packets)?;
        sorted("snd_nxt_packets", &snd_nxt_packets)?;
        self.snd_nxt_packets = some_known(snd_nxt_packets);
        Ok(self)
    }

    /// Adds the kernel's smoothed round-trip time, in seconds; NaN where missing.
    ///
    /// # Errors
    /// [`SeriesError`] for a wrong length, or a value that is not finite and positive.
    pub fn with_srtt(mut self, srtt_s: Vec<f64>) -> Result<Self, SeriesError> {
        same_length("srtt_s", &srtt_s, self.time_s.len())?;
        positive("srtt_s", &srtt_s)?;
        self.srtt_s = some_known(srtt_s);
        Ok(self)
    }

    /// Adds the retransmission counter; NaN where missing. It then determines losses, instead of
    /// the window's falls. Only its rises count.
    ///
    /// # Errors
    /// [`SeriesError`] for a wrong length, or a value that is not finite.
    pub fn with_retransmits(mut self, retransmits: Vec<f64>) -> Result<Self, SeriesError> {
        same_length("retransmits", &retransmits, self.time_s.len())?;
        finite("retransmits", &retransmits)?;
        self.retransmits = some_known(retransmits);
        Ok(self)
    }

    /// Times, seconds, never decreasing.
    pub fn time_s(&self) -> &[f64] {
        &self.time_s
    }

    /// Windows, packets, all > 0.
    pub fn cwnd_packets(&self) -> &[f64] {
        &self.cwnd_packets
    }

    /// Next sequence number, packets, NaN where missing; `None` if all are missing.
    pub fn snd_nxt_packets(&self) -> Option<&[f64]> {
        self.snd_nxt_packets.as_deref()
    }

    /// Smoothed round-trip time, seconds, NaN where missing; `None` if all are missing.
    pub fn srtt_s(&self) -> Option<&[f64]> {
        self.srtt_s.as_deref()
    }

    /// Packets retransmitted so far, NaN where missing; `None` if all are missing.
    pub fn retransmits(&self) -> Option<&[f64]> {
        self.retransmits.as_deref()
    }

    /// Next sequence number of one record, packets, if known.
    pub fn snd_nxt_at(&self, index: usize) -> Option<f64> {
        known_at(&self.snd_nxt_packets, index)
    }

    /// Smoothed round-trip time of one record, seconds, if known.
    pub fn srtt_at(&self, index: usize) -> Option<f64> {
        known_at(&self.srtt_s, index)
    }

    /// Packets retransmitted up to one record, if known.
    pub fn retransmits_at(&self, index: usize) -> Option<f64> {
        known_at(&self.retransmits, index)
    }

    /// Packets retransmitted from the first to the last record; `None` if they were not counted.
    pub fn sent_again(&self) -> Option<f64> {
        let mut known = self.retransmits.as_ref()?.iter().filter(|v| !v.is_nan());
        let mut last = *known.next()?;
        Some(known.fold(0.0, |sum, &v| {
            let rise = (v - last).max(0.0);
            last = v;
            sum + rise
        }))
    }

    /// Packets sent between the first and the last record with a sequence number; `None` without.
    pub fn sent(&self) -> Option<f64> {
        let mut known = (self.snd_nxt_packets.as_ref()?.iter()).filter(|v| !v.is_nan());
        let first = known.next()?;
        Some(known.next_back().unwrap_or(first) - first)
    }

    /// Next sequence number, packets, at every record: interpolated between known records, constant
    /// before the first and after the last.
    pub fn snd_nxt_filled(&self) -> Option<Vec<f64>> {
        let mut filled = self.snd_nxt_packets.clone()?;
        let (t, mut last) = (&self.time_s, None);
        for i in 0..filled.len() {
            if filled[i].is_nan() {
                continue;
            }
            let from = last.map_or(0, |last: usize| last + 1);
            for j in from..i {
                filled[j] = match last {
                    Some(k) if t[i] > t[k] => {
                        filled[k] + (filled[i] - filled[k]) * (t[j] - t[k]) / (t[i] - t[k])
                    }
                    _ => filled[i],
                };
            }
            last = Some(i);
        }
        if let Some(last) = last {
            let value = filled[last];
            filled[last + 1..].fill(value);
        }
        Some(filled)
    }

    /// Number of records, at least two.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.time_s.len()
    }

    /// Time of the first record, seconds.
    pub fn start_s(&self) -> f64 {
        self.time_s[0]
    }

    /// Time of the last record, seconds.
    pub fn end_s(&self) -> f64 {
        self.time_s[self.time_s.len() - 1]
    }

    /// Times, windows and retransmissions of the records in `from_s..=to_s`, if they form a valid
    /// series.
    pub fn windows_between(&self, from_s: f64, to_s: f64) -> Option<Self> {
        let from = self.time_s.partition_point(|&t| t < from_s);
        let to = self.time_s.partition_point(|&t| t <= to_s);
        let (time_s, cwnd) = (&self.time_s[from..to], &self.cwnd_packets[from..to]);
        let part = if self.snd_nxt_packets.is_some() {
            Self::of_one_flow(time_s.to_vec(), cwnd.to_vec()).ok()?
        } else {
            Self::new(time_s.to_vec(), cwnd.to_vec()).ok()?
        };
        match &self.retransmits {
            Some(counted) => part.with_retransmits(counted[from..to].to_vec()).ok(),
            None => Some(part),
        }
    }

    /// Last time minus first time, seconds.
    pub fn duration_s(&self) -> f64 {
        self.end_s() - self.start_s()
    }
}

fn same_length(column: &'static str, values: &[f64], wanted: usize) -> Result<(), SeriesError> {
    if values.len() == wanted {
        Ok(())
    } else {
        Err(SeriesError::Length {
            column,
            got: values.len(),
            wanted,
        })
    }
}

fn known_at(column: &Option<Vec<f64>>, index: usize) -> Option<f64> {
    column.as_ref().map(|c| c[index]).filter(|v| !v.is_nan())
}

/// The column, or `None` if all its values are missing.
fn some_known(column: Vec<f64>) -> Option<Vec<f64>> {
    column.iter().any(|v| !v.is_nan()).then_some(column)
}

/// Replaces each missing window by the previous one, or by the first known.
fn hold(cwnd_packets: &mut [f64]) -> Result<(), SeriesError> {
    let first = cwnd_packets.iter().copied().find(|w| !w.is_nan());
    let mut last = first.ok_or(SeriesError::NoWindow)?;
    for window in cwnd_packets {
        if window.is_nan() {
            *window = last;
        }
        last = *window;
    }
    Ok(())
}

/// Checks that no known value is infinite.
fn finite(column: &'static str, values: &[f64]) -> Result<(), SeriesError> {
    match values.iter().position(|v| v.is_infinite()) {
        Some(index) => Err(SeriesError::NotFinite {
            index,
            column,
            got: values[index],
        }),
        None => Ok(()),
    }
}

fn positive(column: &'static str, values: &[f64]) -> Result<(), SeriesError> {
    finite(column, values)?;
    match values.iter().position(|&v| v <= 0.0) {
        Some(index) => Err(SeriesError::NotPositive {
            index,
            column,
            got: values[index],
        }),
        None => Ok(()),
    }
}

/// Checks that no known value is below the previous one.
fn sorted(column: &'static str, values: &[f64]) -> Result<(), SeriesError> {
    let mut previous = f64::NEG_INFINITY;
    for (index, &got) in values.iter().enumerate() {
        if got < previous {
            return Err(SeriesError::Unsorted {
                index,
                column,
                got,
                previous,
            });
        }
        if !got.is_nan() {
            previous = got;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_or_single_record_is_refused() {
        assert_eq!(Series::new(vec![], vec![]), Err(SeriesError::Empty));
        assert_eq!(
            Series::new(vec![1.0], vec![1.0]),
            Err(SeriesError::OneRecord)
        );
    }

    #[test]
    fn the_error_names_the_record_and_what_was_wanted() {
        let error = Series::new(vec![0.0, 1.0, 0.5], vec![1.0; 3]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "record 2: time_s is 0.5, must be >= 1 as in the record before"
        );
        let error = Series::new(vec![0.0, 1.0], vec![1.0, f64::INFINITY]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "record 1: cwnd_packets is inf, must be a finite number"
        );
        let error = Series::new(vec![0.0, f64::NAN], vec![1.0, 1.0]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "record 1: time_s is NaN, must be a finite number"
        );
        let error = Series::new(vec![0.0, 1.0], vec![f64::NAN; 2]).unwrap_err();
        assert_eq!(error, SeriesError::NoWindow);
        let error = Series::new(vec![0.0, 1.0], vec![0.0, 2.0]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "record 0: cwnd_packets is 0, must be > 0"
        );
        let error = Series::new(vec![0.0, 1.0], vec![2.0, -3.0]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "record 1: cwnd_packets is -3, must be > 0"
        );
        let error = Series::new(vec![0.0, f64::INFINITY], vec![2.0, 3.0]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "record 1: time_s is inf, must be a finite number"
        );
    }

    #[test]
    fn a_window_in_bytes_is_refused() {
        let error = Series::new(vec![0.0, 1.0], vec![10.0, 14_480_000.0]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "record 1: cwnd_packets is 14480000, must be <= 1048576 (is it in bytes?)"
        );
    }

    #[test]
    fn columns_must_be_as_long_as_time() {
        let error = Series::new(vec![0.0, 1.0], vec![1.0]).unwrap_err();
        assert_eq!(
            error,
            SeriesError::Length {
                column: "cwnd_packets",
                got: 1,
                wanted: 2
            }
        );
        let series = Series::new(vec![0.0, 1.0], vec![1.0, 1.0]).unwrap();
        assert!(series.clone().with_srtt(vec![0.1]).is_err());
        assert!(series.clone().with_srtt(vec![0.1, 0.0]).is_err());
        assert!(series.with_snd_nxt(vec![5.0, 4.0]).is_err());
    }

    #[test]
    fn repeated_times_are_allowed_but_not_only_them() {
        assert!(Series::new(vec![0.0, 0.0, 1.0], vec![1.0; 3]).is_ok());
        assert!(matches!(
            Series::new(vec![2.0, 2.0], vec![1.0; 2]),
            Err(SeriesError::NoDuration { .. })
        ));
    }
}
