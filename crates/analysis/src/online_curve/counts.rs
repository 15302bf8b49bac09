//! Packets and losses by window over the last seconds, in a few KB.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::SCALES;

/// Bins from one packet up to e^(240 * 0.05) = 160,000 packets.
pub(super) const BINS: usize = 240;
/// Parts of the sliding window; forgetting removes one part at a time.
pub(super) const SLOTS: i64 = 10;
/// Cells of past slots. They hold ten sawtooths over a factor of 6.8 in cwnd each, or one slow
/// start to the top and nine sawtooths over a factor of 3.
const CELLS: usize = 384;

/// The counts of one bin in one past slot: 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    packets: f32,
    losses: u16,
    bin: u8,
    /// The slot's number modulo 256; the slots kept are closer together than that.
    slot: u8,
}

/// One bin of a stored curve: age in slots, bin, packets, losses.
pub(super) type StoredCell = (u8, u8, f32, u16);

/// Packets and losses for one number of parallel connections.
///
/// The current slot is an array over bins; past slots are lists of the bins seen in them. If these
/// exceed the space, the oldest are removed early.
#[derive(Debug, Clone)]
pub(super) struct Counts {
    slot: i64,
    /// All bins of the current slot.
    packets: Box<[f32; BINS]>,
    losses: Box<[u16; BINS]>,
    /// Sums over the past slots.
    past_packets: Box<[f32; BINS]>,
    past_losses: Box<[u16; BINS]>,
    past: VecDeque<Cell>,
    all_packets: f64,
    all_losses: u32,
    /// The first and the last bin with packets, over all slots.
    seen: Option<(usize, usize)>,
}

impl Counts {
    pub(super) fn new(slot: i64) -> Self {
        Self {
            slot,
            packets: Box::new([0.0; BINS]),
            losses: Box::new([0; BINS]),
            past_packets: Box::new([0.0; BINS]),
            past_losses: Box::new([0; BINS]),
            past: VecDeque::with_capacity(CELLS),
            all_packets: 0.0,
            all_losses: 0,
            seen: None,
        }
    }

    pub(super) fn memory_bytes() -> usize {
        size_of::<Self>()
            + BINS * 2 * (size_of::<f32>() + size_of::<u16>())
            + CELLS * size_of::<Cell>()
    }

    pub(super) fn sent(&mut self, bin: usize, packets: f64) {
        #[allow(clippy::cast_possible_truncation)] // half a part in ten million is lost
        let part = packets as f32;
        self.packets[bin] += part;
        self.all_packets += packets;
        self.see(bin);
    }

    /// Takes a loss. A loss implies a packet sent, however packets are counted.
    pub(super) fn lost(&mut self, bin: usize) {
        let least = self.losses[bin].saturating_add(1);
        self.losses[bin] = least;
        self.all_losses += 1;
        let missing = f32::from(least) - self.packets[bin];
        if missing > 0.0 {
            self.packets[bin] += missing;
            self.all_packets += f64::from(missing);
        }
        self.see(bin);
    }

    /// Withdraws the newest loss in a bin.
    pub(super) fn not_lost(&mut self, bin: usize) {
        if self.losses[bin] > 0 {
            self.losses[bin] -= 1;
        } else if let Some(cell) = (self.past.iter_mut().rev())
            .find(|cell| usize::from(cell.bin) == bin && cell.losses > 0)
        {
            cell.losses -= 1;
            self.past_losses[bin] -= 1;
        } else {
            return;
        }
        self.all_losses -= 1;
    }

    fn see(&mut self, bin: usize) {
        self.seen = Some(match self.seen {
            Some((first, last)) => (first.min(bin), last.max(bin)),
            None => (bin, bin),
        });
    }

    /// Moves to a later slot: the current one becomes past, and the oldest are forgotten. This
    /// takes at most `BINS + CELLS` steps per slot.
    pub(super) fn go_on(&mut self, slot: i64) {
        let ahead = slot.saturating_sub(self.slot);
        if ahead <= 0 {
            return;
        }
        let from = self.seen.map_or(0..0, |(first, last)| first..last + 1);
        for bin in from {
            let (packets, losses) = (self.packets[bin], self.losses[bin]);
            if packets > 0.0 || losses > 0 {
                if self.past.len() == CELLS {
                    self.past.pop_front();
                }
                self.past.push_back(Cell {
                    packets,
                    losses,
                    #[allow(clippy::cast_possible_truncation)] // BINS < 256
                    bin: bin as u8,
                    slot: low_bits(self.slot),
                });
            }
        }
        self.packets.fill(0.0);
        self.losses.fill(0);
        if ahead > SLOTS {
            self.past.clear();
        }
        while (self.past.front())
            .is_some_and(|cell| i64::from(low_bits(slot).wrapping_sub(cell.slot)) > SLOTS)
        {
            self.past.pop_front();
        }
        self.slot = slot;
        self.sum_up();
    }

    /// Forgets all slots before `slot`.
    pub(super) fn forget_before(&mut self, slot: i64) {
        if slot > self.slot {
            self.go_on(slot);
            self.past.clear();
        } else {
            let keep = self.slot.saturating_sub(slot);
            while (self.past.front())
                .is_some_and(|cell| i64::from(low_bits(self.slot).wrapping_sub(cell.slot)) > keep)
            {
                self.past.pop_front();
            }
        }
        self.sum_up();
    }

    /// Recomputes the sums, so that no rounding error of removed counts remains.
    fn sum_up(&mut self) {
        self.past_packets.fill(0.0);
        self.past_losses.fill(0);
        self.seen = None;
        (self.all_packets, self.all_losses) = (0.0, 0);
        let (mut first, mut last) = (BINS, 0);
        for cell in &self.past {
            let bin = usize::from(cell.bin);
            self.past_packets[bin] += cell.packets;
            self.past_losses[bin] = self.past_losses[bin].saturating_add(cell.losses);
            (first, last) = (first.min(bin), last.max(bin));
            self.all_packets += f64::from(cell.packets);
            self.all_losses += u32::from(cell.losses);
        }
        for bin in 0..BINS {
            if self.packets[bin] > 0.0 {
                (first, last) = (first.min(bin), last.max(bin));
                self.all_packets += f64::from(self.packets[bin]);
                self.all_losses += u32::from(self.losses[bin]);
            }
        }
        if first <= last {
            self.seen = Some((first, last));
        }
    }

    pub(super) fn at(&self, bin: usize) -> (f64, f64) {
        (
            f64::from(self.packets[bin] + self.past_packets[bin]),
            f64::from(self.losses[bin]) + f64::from(self.past_losses[bin]),
        )
    }

    pub(super) fn seen(&self) -> Option<(usize, usize)> {
        self.seen
    }

    pub(super) fn packets(&self) -> f64 {
        self.all_packets
    }

    pub(super) fn losses(&self) -> u32 {
        self.all_losses
    }

    pub(super) fn store(&self) -> Vec<StoredCell> {
        let past = self.past.iter().map(|cell| {
            let age = low_bits(self.slot).wrapping_sub(cell.slot);
            (age, cell.bin, cell.packets, cell.losses)
        });
        #[allow(clippy::cast_possible_truncation)] // BINS < 256
        let current = (0..BINS)
            .filter(|&bin| self.packets[bin] > 0.0)
            .map(|bin| (0, bin as u8, self.packets[bin], self.losses[bin]));
        past.chain(current).collect()
    }

    /// # Errors
    /// The error in a cell, or too many cells.
    pub(super) fn restore(slot: i64, cells: &[StoredCell]) -> Result<Self, String> {
        if cells.len() > CELLS + BINS {
            return Err(format!(
                "{} cells, expected at most {}",
                cells.len(),
                CELLS + BINS
            ));
        }
        let mut counts = Self::new(slot);
        let mut before = u8::MAX;
        for &(age, bin, packets, losses) in cells {
            if i64::from(age) > SLOTS || usize::from(bin) >= BINS || age > before {
                return Err(format!(
                    "a cell of bin {bin}, {age} slots ago, expected bins below {BINS} and ages of \
                     at most {SLOTS} that do not increase"
                ));
            }
            if !(packets.is_finite() && packets > 0.0 && packets < 1e12) {
                return Err(format!(
                    "a cell of {packets} packets, expected a number > 0"
                ));
            }
            before = age;
            if age == 0 {
                counts.packets[usize::from(bin)] = packets;
                counts.losses[usize::from(bin)] = losses;
            } else if counts.past.len() < CELLS {
                let slot = low_bits(slot).wrapping_sub(age);
                counts.past.push_back(Cell {
                    packets,
                    losses,
                    bin,
                    slot,
                });
            }
        }
        counts.sum_up();
        Ok(counts)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // that is what is wanted
fn low_bits(slot: i64) -> u8 {
    slot as u8
}

/// The stored form of one curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredCounts {
    pub(super) npc: u32,
    pub(super) slot: i64,
    pub(super) cells: Vec<StoredCell>,
}

/// The bin of a window.
pub(super) fn bin(cwnd_packets: f64) -> usize {
    SCALES.bin(cwnd_packets)
}
