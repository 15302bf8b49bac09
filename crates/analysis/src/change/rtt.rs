//! Steps of the round-trip time, distinguished from the fluctuations of queues.
//!
//! A queue only adds delay, and one flow's share of it follows the flow's window. So the lowest
//! smoothed round-trip time of half a second lies within the range seen before. It leaves that
//! range at most as far as the window leaves its own. Repeated values beyond that, on one side, are
//! a step. Each adds the log-likelihood ratio of two Laplace laws, "the level is there" and "it is
//! noise". It adds at most three nats, so that one outlier decides nothing (a CUSUM with a robust
//! score; Page 1954, Huber 1965).

use super::{CHANGES_EVERY_S, Change, ChangeKind, SURE, probability};

/// Shortest piece of time for each minimum, in seconds and in round trips.
const PIECE_S: f64 = 0.5;
const PIECE_RTTS: f64 = 4.0;
/// No change is detected before this many pieces.
const PIECES_BEFORE: u32 = 4;
/// Steps below 5 % are ignored, whatever the noise.
const LEAST_STEP: f64 = 0.05;
/// Allowance for noise beyond the range, in mean differences of neighboring pieces.
const MARGIN: f64 = 4.0;
/// Smallest scale of the noise, in ln: the kernel stores srtt in eighths of a microsecond.
const LEAST_NOISE: f64 = 0.02;
/// Most nats that one piece can add.
const NATS: f64 = 3.0;
/// Time constant in seconds for shrinking the upper edges of the ranges, so that a formerly long
/// queue does not hide steps forever. The lower edges stay, because a value once reached without a
/// change remains possible.
const RANGE_MEMORY_S: f64 = 300.0;
/// Pieces over which noise is averaged.
const NOISE_PIECES: f64 = 60.0;
/// Longer excursions do not update the longest excursion.
const LONGEST: u32 = 20;

/// Lowest and highest value of a quantity.
#[derive(Debug, Clone, Copy)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    const NONE: Self = Self {
        low: f64::INFINITY,
        high: f64::NEG_INFINITY,
    };

    fn include(&mut self, low: f64, high: f64) {
        self.low = self.low.min(low);
        self.high = self.high.max(high);
    }
}

/// The lowest round-trip time and the windows of one piece of time.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start_s: f64,
    ln_rtt: f64,
    ln_cwnd: Range,
}

/// A stay outside the range.
#[derive(Debug, Clone, Copy)]
struct Excursion {
    start_s: f64,
    above: bool,
    pieces: u32,
    nats: f64,
    ln_rtt: Range,
    ln_cwnd: Range,
}

#[derive(Debug, Clone, Default)]
pub(super) struct RttSteps {
    piece: Option<Piece>,
    /// Ranges of the round-trip time and of the window since the last change; in ln.
    range: Option<(Range, Range)>,
    pieces: u32,
    last: f64,
    noise: f64,
    excursion: Option<Excursion>,
    /// Pieces of the longest excursion that returned to the range.
    longest: u32,
}

impl RttSteps {
    pub(super) fn observe(
        &mut self,
        time_s: f64,
        srtt_s: f64,
        cwnd_packets: f64,
    ) -> Option<Change> {
        let length_s = PIECE_S.max(PIECE_RTTS * srtt_s);
        let mut found = None;
        if let Some(piece) = self.piece
            && time_s - piece.start_s >= length_s
        {
            found = self.take(&piece, time_s);
            self.piece = None;
        }
        let piece = self.piece.get_or_insert(Piece {
            start_s: time_s,
            ln_rtt: f64::INFINITY,
            ln_cwnd: Range::NONE,
        });
        // computing logarithms only for new extremes would save little
        piece.ln_rtt = piece.ln_rtt.min(srtt_s.ln());
        let ln_cwnd = cwnd_packets.ln();
        piece.ln_cwnd.include(ln_cwnd, ln_cwnd);
        found
    }

    /// Takes a finished piece.
    fn take(&mut self, piece: &Piece, now_s: f64) -> Option<Change> {
        let x = piece.ln_rtt;
        let Some((mut rtt, mut cwnd)) = self.range else {
            self.range = Some((Range { low: x, high: x }, piece.ln_cwnd));
            (self.pieces, self.last, self.noise) = (1, x, LEAST_NOISE);
            return None;
        };
        let length_s = now_s - piece.start_s;
        let margin = LEAST_STEP.max(MARGIN * self.noise);
        // a queue grows at most in proportion to the window, and drains likewise
        let may_rise = (piece.ln_cwnd.high - cwnd.high).max(0.0);
        let may_fall = (cwnd.low - piece.ln_cwnd.low).max(0.0);
        let above = x - (rtt.high + margin + may_rise);
        let below = (rtt.low - margin - may_fall) - x;
        let outside = above.max(below);
        if outside <= 0.0 || self.pieces < PIECES_BEFORE {
            if let Some(excursion) = self.excursion.take() {
                self.longest = self.longest.max(excursion.pieces).min(LONGEST);
            } else {
                let difference = (x - self.last).abs();
                self.noise += (difference - self.noise) / NOISE_PIECES.min(f64::from(self.pieces));
            }
            self.last = x;
            self.pieces = self.pieces.saturating_add(1);
            let back = 1.0 - (-length_s / RANGE_MEMORY_S).exp();
            for (range, at) in [
                (&mut rtt, (x, x)),
                (&mut cwnd, (piece.ln_cwnd.low, piece.ln_cwnd.high)),
            ] {
                range.high += back * (at.1 - range.high).min(0.0);
                range.include(at.0, at.1);
            }
            self.range = Some((rtt, cwnd));
            return None;
        }
        let is_above = above > 0.0;
        let fresh = Excursion {
            start_s: piece.start_s,
            above: is_above,
            pieces: 0,
            nats: 0.0,
            ln_rtt: Range::NONE,
            ln_cwnd: Range::NONE,
        };
        let mut excursion = match self.excursion {
            Some(excursion) if excursion.above == is_above => excursion,
            _ => fresh,
        };
        excursion.pieces += 1;
        excursion.ln_rtt.include(x, x);
        (excursion.ln_cwnd).include(piece.ln_cwnd.low, piece.ln_cwnd.high);
        // if excursions usually last, the pieces of one are not independent evidence
        let nats = (outside / self.noise.max(LEAST_NOISE)).min(NATS);
        excursion.nats += nats / f64::from(1 + self.longest);
        self.excursion = Some(excursion);
        let sure = probability(excursion.nats + (length_s / CHANGES_EVERY_S).min(0.5).ln());
        if sure < SURE {
            return None;
        }
        let before = rtt.low.exp();
        self.range = Some((excursion.ln_rtt, excursion.ln_cwnd));
        (self.pieces, self.last, self.longest) = (excursion.pieces, x, 0);
        self.excursion = None;
        Some(Change {
            kind: ChangeKind::Rtt,
            at_s: excursion.start_s,
            detected_s: now_s,
            before,
            after: excursion.ln_rtt.low.exp(),
            probability: sure,
        })
    }
}
