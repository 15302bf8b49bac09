//! TCP's sequence numbers as they stand in packets, as counts of payload that never wrap.

/// Follows the numbers of one direction of a connection; right as long as they move by less than 2 GiB
/// from one packet to the next.
#[derive(Clone, Copy, Debug)]
pub struct PayloadCount {
    first: u64,
    last: u64,
}

impl PayloadCount {
    /// Counts from the first packet seen. A SYN has the first number, which counts no payload.
    pub fn beginning(sequence: u32) -> Self {
        Self {
            first: u64::from(sequence) + 1,
            last: sequence.into(),
        }
    }

    /// Counts from a packet of a connection that is made: its first payload byte is the first of all.
    pub fn of_connected(sequence: u32) -> Self {
        Self {
            first: sequence.into(),
            last: sequence.into(),
        }
    }

    /// The number of a segment's first payload byte, from 0; that of the SYN is 0, too.
    pub fn advance(&mut self, sequence: u32) -> u64 {
        // the nearest number with these last 32 bits
        let step = sequence.wrapping_sub(self.last as u32) as i32;
        self.last = self.last.saturating_add_signed(step.into());
        self.last.saturating_sub(self.first)
    }
}
