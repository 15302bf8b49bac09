//! Whether the records are of one flow.

/// Above this part of jumps to and fro a series is one of several flows. On the ECON authors' traces of
/// single flows it is below 2 %, of two of them put together 20 to 30; a sawtooth looked at more rarely
/// than it falls has 8 % by chance.
pub(super) const MIXED_PART: f64 = 0.15;
/// Fewer records tell nothing, and that many are looked back at.
pub(super) const MIXED_RECORDS: usize = 50;
/// Windows to which a jump may lead back.
const LOOK_BACK: usize = 5;
/// A jump: so many packets, and this part of the window.
const JUMP_PACKETS: f64 = 3.0;
const JUMP_PART: f64 = 0.1;
/// As near as this part of the window is back where it was.
const BACK_PART: f64 = 0.01;

/// Tells records of several flows that were taken for one: the window jumps, and jumps back to where it
/// was some records ago. Flows of about the same window, and one with few records among many of
/// another, are not told.
#[derive(Debug, Clone, Default)]
pub struct Interleaving {
    /// Windows before, newest first; 0 where there was none.
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

    /// Whether the latest records are of several flows.
    pub fn is_mixed(&self) -> bool {
        self.records >= MIXED_RECORDS as f64 && self.recently > MIXED_PART
    }

    /// Part of all records that jump to and fro, 0..=1.
    pub fn part_of_all(&self) -> f64 {
        self.jumps / self.records.max(1.0)
    }
}
