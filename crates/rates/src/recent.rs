//! The last steps of a path, for means over the time just past.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Steps: seconds and bits of each, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recent {
    steps: VecDeque<(f32, f32)>,
    seconds: f64,
    /// Steps are kept for so long.
    keep_s: f64,
}

impl Recent {
    pub(crate) fn new(keep_s: f64) -> Self {
        Self {
            keep_s,
            ..Self::default()
        }
    }

    #[allow(clippy::cast_possible_truncation)] // seven digits
    pub(crate) fn push(&mut self, seconds: f64, bits: f64) {
        let seconds = seconds as f32;
        self.steps.push_back((seconds, bits as f32));
        self.seconds += f64::from(seconds);
        while let Some(&(oldest, _)) = self.steps.front()
            && self.seconds - f64::from(oldest) >= self.keep_s * (1.0 - 1e-6)
        {
            self.steps.pop_front();
            self.seconds -= f64::from(oldest);
        }
    }

    /// Bytes of memory beyond its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.steps.capacity() * size_of::<(f32, f32)>()
    }

    /// Mean rates over the last `count` spans of `span_s`, the newest first; the last one may be shorter.
    pub(crate) fn means(&self, span_s: f64, count: usize) -> impl Iterator<Item = f64> {
        let steps = self.steps.iter().rev();
        let mut steps = steps.map(|(seconds, bits)| (f64::from(*seconds), f64::from(*bits)));
        let mut rest = steps.next();
        (0..count).map_while(move |_| {
            let (mut seconds, mut bits) = (0.0, 0.0);
            while let Some((step_s, step_bits)) = rest {
                let part = ((span_s - seconds) / step_s).min(1.0);
                seconds += part * step_s;
                bits += part * step_bits;
                if part < 1.0 {
                    rest = Some(((1.0 - part) * step_s, (1.0 - part) * step_bits));
                    break;
                }
                rest = steps.next();
            }
            (seconds > 0.0).then(|| bits / seconds)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_take_parts_of_steps() {
        let mut recent = Recent::new(10.0);
        for (seconds, rate) in [(2.0, 1.0), (3.0, 2.0), (1.0, 5.0)] {
            recent.push(seconds, seconds * rate);
        }
        let means: Vec<f64> = recent.means(2.0, 5).collect();
        assert_eq!(means, [(5.0 + 2.0) / 2.0, 2.0, 1.0]);
        assert_eq!(recent.means(100.0, 5).collect::<Vec<_>>(), [13.0 / 6.0]);
    }

    #[test]
    fn old_steps_are_forgotten() {
        let mut recent = Recent::new(10.0);
        (0..1000).for_each(|_| recent.push(1.0, 3.0));
        assert_eq!(recent.steps.len(), 10);
        assert!((recent.seconds - 10.0).abs() < 1e-9);
    }
}
