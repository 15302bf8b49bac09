//! Detects records that belong to several flows.

/// With a larger share of jumps back and forth, a series has several flows. The ECON authors'
/// traces of single flows have below 2 %, two of them merged 20 to 30 %. A sawtooth sampled more
/// rarely than it falls has 8 % by chance.
pub(super) const MIXED_PART: f64 = 0.15;
/// The number of recent records considered; with fewer there is no result.
pub(super) const MIXED_RECORDS: usize = 50;
/// Previous windows to which a jump may return.
const LOOK_BACK: usize = 5;
/// The size of a jump: in packets, and as a share of the window.
const JUMP_PACKETS: f64 = 3.0;
const JUMP_PART: f64 = 0.1;
/// A window this close counts as returned, as a share of the window.
const BACK_PART: f64 = 0.01;

/// Detects records of several flows merged into one: the window jumps, and jumps back to its value
/// some records ago. It does not detect flows with about the same window, or a flow with few
/// records among many of another.
#[derive(Debug, Clone, Default)]
pub struct Interleaving {
    /// Previous windows, newest first; 0 if there was none.
    before: [f64; LOOK_BACK],
    records: f64,
    jumps: f64,
    recently: f64,
}

impl Interleaving {
    /// Takes the next window, packets.
    pub fn push(&mut self, cwnd_packets: f64) {
        let w = cwnd_packets;
        let [last, earlier @ ..] = self.before;
        let jump = (w - last).abs() > JUMP_PACKETS.max(JUMP_PART * w.max(last)) && last > 0.0;
        let back = earlier
            .iter()
            .any(|&then| (w - then).abs() <= 0.5_f64.max(BACK_PART * w));
        let to_and_fro = f64::from(u8::from(jump && back));
        self.records += 1.0;
        self.jumps += to_and_fro;
        self.recently += (to_and_fro - self.recently) / MIXED_RECORDS as f64;
        self.before.rotate_right(1);
        self.before[0] = w;
    }

    /// Whether the recent records belong to several flows.
    pub fn is_mixed(&self) -> bool {
        self.records >= MIXED_RECORDS as f64 && self.recently > MIXED_PART
    }

    /// Share of all records that jump back and forth, 0..=1.
    pub fn part_of_all(&self) -> f64 {
        self.jumps / self.records.max(1.0)
    }
}
