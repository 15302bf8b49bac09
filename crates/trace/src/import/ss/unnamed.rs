//! Sockets without addresses, distinguished by counters that never decrease.

/// Counters over a socket's life; ss omits zeros.
const COUNTERS: [(&str, f64); 5] = [
    ("bytes_acked:", 1.0),
    ("bytes_received:", 1.0),
    ("bytes_sent:", 1.0),
    ("segs_out:", 1000.0),
    ("segs_in:", 1000.0),
];

/// Each line is compared with all of them.
const MOST: usize = 1024;

struct Socket {
    /// The sample in which it was last seen.
    sample: u64,
    counters: [f64; COUNTERS.len()],
    /// Negotiated when the connection opens, and constant afterward.
    window_scale: String,
}

/// The sockets seen so far.
#[derive(Default)]
pub(super) struct Unnamed(Vec<Socket>);

impl Unnamed {
    /// Returns the socket that a line belongs to: the one that needs the least progress, else a new
    /// one. In a sample with a time, each socket appears once.
    ///
    /// # Errors
    /// If there are too many to distinguish.
    pub fn socket(&mut self, info: &[&str], sample: u64, timed: bool) -> Result<usize, String> {
        let value = |key: &str| info.iter().find_map(|word| word.strip_prefix(key));
        let counters = COUNTERS.map(|(key, _)| {
            let count = value(key).and_then(|text| text.parse::<u64>().ok());
            count.unwrap_or(0) as f64
        });
        let window_scale = value("wscale:").unwrap_or("").to_string();
        let progress = |socket: &Socket| -> Option<f64> {
            if socket.window_scale != window_scale || (timed && socket.sample == sample) {
                return None;
            }
            let mut sum = 0.0;
            for ((now, before), (_, weight)) in counters.iter().zip(&socket.counters).zip(&COUNTERS)
            {
                if now < before {
                    return None;
                }
                sum += (now - before) * weight;
            }
            Some(sum)
        };
        let nearest = (self.0.iter().enumerate())
            .filter_map(|(number, socket)| Some((number, progress(socket)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(number, _)| number);
        let number = match nearest {
            Some(number) => number,
            None if self.0.len() == MOST => {
                return Err(format!("more than {MOST} sockets without addresses"));
            }
            None => {
                self.0.push(Socket {
                    sample,
                    counters,
                    window_scale: window_scale.clone(),
                });
                self.0.len() - 1
            }
        };
        let socket = &mut self.0[number];
        (socket.sample, socket.counters) = (sample, counters);
        Ok(number)
    }
}
