//! What a flow sends while nothing is lost: cells of packets, with the times at which they leave the
//! bottleneck.

use super::LatencyPath;
use super::avoidance::Avoidance;
use pathcast_analysis::epochs::{FlowState, Phase};
use pathcast_window_law::{Cc, Epoch};

/// Packets that follow one another and are alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    /// How many.
    pub(super) packets: f64,
    /// When the first begins to leave the bottleneck, seconds from the first packet of all.
    pub(super) start_s: f64,
    /// When the last has left it.
    pub(super) end_s: f64,
    /// The window when they are sent, packets.
    pub(super) window: f64,
    /// The window when a loss among them is noticed, packets.
    pub(super) at_loss: f64,
    /// Whether the packet after them overflows the queue.
    pub(super) overflows: bool,
}

impl Cell {
    /// When packet `n` of the cell has left.
    pub(super) fn at(&self, n: f64) -> f64 {
        self.start_s + (self.end_s - self.start_s) * (n / self.packets).min(1.0)
    }
}

/// Rounds of avoidance that are walked one by one; those after are taken several at a time.
const SINGLE_ROUNDS: u32 = 40;
/// Later cells have at least this part of what was sent before.
const COARSER: f64 = 0.04;
/// The most cells of a round of slow start; a cell has at least four packets.
const PARTS: f64 = 6.0;
/// No sign of HyStart's is heeded below this window (Linux's `hystart_low_window`).
const HYSTART_LOW_WINDOW: f64 = 16.0;
/// Acknowledgments, of two packets each, must be as close as this (Linux's `hystart_ack_delta_us`).
const HYSTART_GAP_S: f64 = 0.002;

/// A new connection that sends `packets`.
pub(super) fn opening(path: &LatencyPath<'_>, initial_window: f64, packets: f64) -> Vec<Cell> {
    let mut walker = Walker::new(path, packets);
    let w = initial_window.min(path.max_window_packets);
    walker.slow_start(w, f64::INFINITY, 0.0);
    walker.cells
}

/// A running flow that sends `packets` from `now_s` on.
pub(super) fn mid_flow(
    path: &LatencyPath<'_>,
    state: &FlowState,
    now_s: f64,
    packets: f64,
) -> Vec<Cell> {
    let mut walker = Walker::new(path, packets);
    let w = state.cwnd_packets.max(1.0);
    let w_max = state.w_max_packets;
    match state.phase {
        Phase::SlowStart => walker.slow_start(w, state.ssthresh_packets.max(w), w_max),
        Phase::Recovery => {
            // what is left of it, at the window where avoidance will begin
            let since_s = state.last_loss_s.map_or(0.0, |loss| now_s - loss);
            let left_s = (path.rtt_s - since_s).clamp(0.0, path.rtt_s);
            let start = state.ssthresh_packets.clamp(1.0, path.max_window_packets);
            let sent =
                (0.5 * (w + start) * left_s / path.rtt_s).min(path.capacity_packets_per_s * left_s);
            if sent > 0.0 {
                walker.push(sent, left_s, start, w);
            }
            let epoch = Epoch::new(path.cc, start, w_max, path.rtt_s);
            walker.avoid(Avoidance::new(epoch, path.max_window_packets), None);
        }
        Phase::Avoidance => {
            let epoch = state.epoch(path.cc, path.rtt_s);
            let in_epoch_s = (now_s - state.held_s - state.epoch_start_s).max(0.0);
            let growth = if state.held_s > 0.0 {
                1.0
            } else {
                state.growth
            };
            let window = Avoidance::within(
                epoch,
                in_epoch_s,
                w,
                growth,
                state.release_in_s,
                path.max_window_packets,
            );
            walker.avoid(window, None);
        }
    }
    walker.cells
}

/// When packet `n` has left the bottleneck, seconds.
pub(super) fn time_of(cells: &[Cell], n: f64) -> f64 {
    let mut sent = 0.0;
    for cell in cells {
        if sent + cell.packets >= n - 1e-9 {
            return cell.at(n - sent);
        }
        sent += cell.packets;
    }
    cells.last().map_or(0.0, |cell| cell.end_s)
}

/// The window when packet `n` is sent.
pub(super) fn window_at(cells: &[Cell], n: f64) -> f64 {
    let mut sent = 0.0;
    let found = cells.iter().find(|cell| {
        sent += cell.packets;
        sent >= n
    });
    found.or(cells.last()).map_or(1.0, |cell| cell.window)
}

/// How much earlier than a fluid's the last packet of a window leaves, on average, seconds: a window
/// smaller than the path is one clump a round trip, that its first packets begin.
pub(super) fn clumped_s(path: &LatencyPath<'_>, window: f64) -> f64 {
    0.5 * path.rtt_s * (1.0 - window / path.bdp()).max(0.0)
}

struct Walker<'a> {
    path: &'a LatencyPath<'a>,
    packets: f64,
    sent: f64,
    cells: Vec<Cell>,
}

/// The last round: its packets, and when the first and the last of them left the bottleneck.
#[derive(Clone, Copy)]
struct Round {
    packets: f64,
    start_s: f64,
    end_s: f64,
}

impl<'a> Walker<'a> {
    fn new(path: &'a LatencyPath<'a>, packets: f64) -> Self {
        Self {
            path,
            packets,
            sent: 0.0,
            cells: Vec::with_capacity(64),
        }
    }

    fn done(&self) -> bool {
        self.sent >= self.packets || self.cells.last().is_some_and(|cell| cell.overflows)
    }

    fn end_s(&self) -> f64 {
        self.cells.last().map_or(0.0, |cell| cell.end_s)
    }

    /// A fluid's cell.
    fn push(&mut self, packets: f64, s: f64, window: f64, at_loss: f64) {
        let start_s = self.end_s();
        self.cells.push(Cell {
            packets,
            start_s,
            end_s: start_s + s,
            window,
            at_loss,
            overflows: false,
        });
        self.sent += packets;
    }

    /// Queue before the link when a round begins, and the part of the round that it has room for.
    fn room(&self, last: Option<Round>, w: f64) -> f64 {
        let path = self.path;
        let Some(last) = last else {
            return ((path.buffer_packets + 1.0) / w).min(1.0);
        };
        let growth = w - last.packets;
        if growth <= 0.0 || path.capacity_packets_per_s.is_infinite() {
            return 1.0;
        }
        let begins_s = last.start_s + path.rtt_s;
        let queue = (last.end_s - begins_s).max(0.0) * path.capacity_packets_per_s;
        ((path.buffer_packets - queue) / growth).clamp(0.0, 1.0)
    }

    /// When a round of `w` packets leaves the bottleneck: its first packet is sent when the first of
    /// the last round is acknowledged, and follows the last round's on the link.
    fn round(&self, last: Option<Round>, w: f64) -> Round {
        let start_s = last.map_or(0.0, |last| (last.start_s + self.path.rtt_s).max(last.end_s));
        Round {
            packets: w,
            start_s,
            end_s: start_s + w / self.path.capacity_packets_per_s,
        }
    }

    /// Doubles the window each round, until HyStart, the threshold, an overflow or the end.
    fn slow_start(&mut self, initial: f64, ssthresh: f64, w_max: f64) {
        let path = self.path;
        let (mut w, mut last): (f64, Option<Round>) = (initial, None);
        let (mut queued_s, mut leave) = (0.0, false);
        while !self.done() {
            let round = self.round(last, w);
            let room = self.room(last, w);
            // a train of acknowledgments of the last round, as long as half the round trip
            let train_s = w / path.capacity_packets_per_s;
            let half = 0.5 * path.bdp();
            let mut next = (2.0 * w).min(path.max_window_packets).min(ssthresh);
            if path.hystart && next >= HYSTART_LOW_WINDOW {
                let close = 2.0 / path.capacity_packets_per_s <= HYSTART_GAP_S;
                let risen_s = (0.125 * path.rtt_s).clamp(0.004, 0.016);
                if close && train_s > 0.5 * path.rtt_s {
                    next = next.min(w + half);
                    leave = true;
                } else if queued_s > risen_s {
                    next = next.min(w + 8.0);
                    leave = true;
                }
            }
            leave |= next >= ssthresh;
            queued_s = last.map_or(0.0, |last| last.end_s - last.start_s - path.rtt_s);
            let parts = (w / 4.0).floor().clamp(1.0, PARTS);
            let size = w * room / parts;
            for part in 0..parts as u32 {
                if size <= 0.0 || self.done() {
                    break;
                }
                let part = f64::from(part);
                let to = (part + 1.0) * size;
                let s = |n: f64| round.start_s + n / path.capacity_packets_per_s;
                self.sent += size;
                self.cells.push(Cell {
                    packets: size,
                    start_s: s(part * size),
                    end_s: s(to),
                    window: w,
                    // what was acknowledged by then has grown the window
                    at_loss: (initial + self.sent - 0.5 * size).min(next).max(w),
                    overflows: false,
                });
            }
            if room < 1.0 {
                self.overflow(round, w, next);
                return;
            }
            (w, last) = (next, Some(round));
            if leave {
                break;
            }
        }
        if !self.done() {
            let epoch = Epoch::new(path.cc, w, w_max, path.rtt_s);
            let ceiling = path.max_window_packets;
            let window = if w_max > 0.0 {
                Avoidance::new(epoch, ceiling)
            } else {
                Avoidance::aimless(epoch, ceiling)
            };
            self.avoid(window, last);
        }
    }

    /// The queue overflows behind the last cell, or at the very beginning of a round.
    fn overflow(&mut self, round: Round, w: f64, next: f64) {
        match self.cells.last_mut() {
            Some(cell) => {
                cell.overflows = true;
                cell.at_loss = cell.at_loss.max(next.min(2.0 * w)).max(w);
            }
            None => self.cells.push(Cell {
                packets: 1e-9,
                start_s: round.start_s,
                end_s: round.start_s,
                window: w,
                at_loss: w,
                overflows: true,
            }),
        }
    }

    /// Avoidance, to the end or until the queue overflows. After slow start packets stay in clumps.
    fn avoid(&mut self, mut window: Avoidance, mut last: Option<Round>) {
        let path = self.path;
        let mut rounds = 0;
        while !self.done() {
            let w = window.window();
            let rtt_s = path.rtt_at(w);
            if w > path.full() {
                if self.cells.is_empty() {
                    self.push(1e-9, 0.0, w, w);
                }
                if let Some(cell) = self.cells.last_mut() {
                    cell.overflows = true;
                    cell.at_loss = w;
                }
                return;
            }
            rounds += 1;
            let coarse = COARSER * self.sent;
            let before = window.window();
            if rounds <= SINGLE_ROUNDS || coarse < w {
                match last {
                    Some(_) => {
                        let round = self.round(last, w);
                        self.cells.push(Cell {
                            packets: w,
                            start_s: round.start_s,
                            end_s: round.end_s,
                            window: w,
                            at_loss: w + if path.cc == Cc::Reno { 1.0 } else { 0.5 },
                            overflows: false,
                        });
                        self.sent += w;
                        last = Some(round);
                    }
                    None => self.push(w, rtt_s, w, w),
                }
                window.advance(w, rtt_s);
            } else {
                // a step of the middle's rate (midpoint rule)
                let rough_s = coarse * rtt_s / w;
                let mut middle = window;
                middle.advance(0.5 * coarse, 0.5 * rough_s);
                let w = middle.window().min(path.full());
                let s = coarse * path.rtt_at(w) / w;
                self.push(coarse, s, w, w);
                window.advance(coarse, s);
                last = None;
            }
            // up to the receive window nothing changes any more
            if window.window() == before && window.window() >= path.max_window_packets {
                let left = self.packets - self.sent;
                if left > 0.0 && rounds > SINGLE_ROUNDS {
                    let w = window.window();
                    self.push(left, left * path.rtt_at(w) / w, w, w);
                }
            }
        }
    }
}
