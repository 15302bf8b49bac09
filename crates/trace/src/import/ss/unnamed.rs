//! Sockets whose addresses were filtered out, told apart by counters that never fall.

/// What ss counts over a socket's life; what is 0 it leaves out.
const COUNTERS: [(&str, f64); 5] = [
    ("bytes_acked:", 1.0),
    ("bytes_received:", 1.0),
    ("bytes_sent:", 1.0),
    ("segs_out:", 1000.0),
    ("segs_in:", 1000.0),
];

/// Each line is held against all of them.
const MOST: usize = 1024;

struct Socket {
    /// When it was seen last.
    sample: u64,
    counters: [f64; COUNTERS.len()],
    /// Agreed on at its beginning, and the same ever after.
    window_scale: String,
}

/// The sockets that were seen.
#[derive(Default)]
pub(super) struct Unnamed(Vec<Socket>);

impl Unnamed {
    /// Which socket a line is of: the one that it takes the least progress to be, else a new one. In a sample with
    /// a time, each socket stands once.
    ///
    /// # Errors
    /// There are too many to tell apart.
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
