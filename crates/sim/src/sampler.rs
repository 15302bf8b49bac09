//! Some of the messages of one flow, and its window at regular moments: what estimates of delays need of
//! runs too long to be kept whole.

use pathcast_path::seed;
use pathcast_trace::{Direction, MessageRecord, PacketRecord, Record};
use rand_core::RngCore;

use crate::recorder::Recorder;

/// Keeps messages of one flow at random, and its window on a grid of moments.
#[derive(Clone, Debug)]
pub struct Sampler {
    flow: u32,
    from_s: f64,
    messages_per_sample: u64,
    /// Number of the next message to keep.
    next: u64,
    rng: rand_xoshiro::Xoshiro256PlusPlus,
    window_every_s: f64,
    last_window: f64,
    /// Those that were kept, of all written after the beginning.
    pub messages: Vec<MessageRecord>,
    /// Packets of the window at each moment of the grid, from the beginning on.
    pub windows: Vec<f64>,
    /// Messages that were written after the beginning and have arrived, and those of them that waited
    /// for the window before they were first sent.
    pub arrived: u64,
    /// See [`arrived`](Self::arrived).
    pub buffered: u64,
}

impl Sampler {
    /// Keeps one of `messages_per_sample` messages of `flow` on average, of those written from `from_s` on,
    /// and the window every `window_every_s` from then on (0: never).
    pub fn new(
        flow: u32,
        from_s: f64,
        messages_per_sample: u64,
        window_every_s: f64,
        run_seed: u64,
    ) -> Self {
        Self {
            flow,
            from_s,
            messages_per_sample: messages_per_sample.max(1),
            next: 0,
            rng: seed::generator(run_seed, "sampler"),
            window_every_s,
            last_window: f64::NAN,
            messages: Vec::new(),
            windows: Vec::new(),
            arrived: 0,
            buffered: 0,
        }
    }

    /// When the next moment of the grid is.
    fn window_due_s(&self) -> f64 {
        match self.window_every_s > 0.0 {
            true => self.from_s + self.windows.len() as f64 * self.window_every_s,
            false => f64::INFINITY,
        }
    }
}

impl Recorder for Sampler {
    const ACKS: bool = true;
    const PACKETS: bool = false;
    const MESSAGES: bool = true;

    fn ack(&mut self, record: Record) {
        if record.flow != self.flow {
            return;
        }
        // until this acknowledgment the window was as the last one left it
        while self.window_due_s() < record.time_s {
            self.windows.push(match self.last_window.is_nan() {
                true => record.cwnd_packets,
                false => self.last_window,
            });
        }
        self.last_window = record.cwnd_packets;
    }

    fn packet(&mut self, _: PacketRecord) {}

    fn message(&mut self, record: MessageRecord) {
        let of_flow = record.flow == self.flow && record.direction == Direction::Data;
        if !of_flow || record.written_s < self.from_s {
            return;
        }
        self.arrived += 1;
        self.buffered += u64::from(record.entered_s > record.written_s);
        if self.arrived <= self.next {
            return;
        }
        // 1 to twice the mean less 1 messages on, each as likely
        let below = 2 * self.messages_per_sample - 1;
        let gap = ((u128::from(self.rng.next_u64()) * u128::from(below)) >> 64) as u64;
        self.next = self.arrived + gap;
        self.messages.push(record);
    }
}
