//! The last steps of a path, for means over the time just past.

use std::collections::VecDeque;

/// Steps: seconds and bits of each, the newest last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    steps: VecDeque<(f64, f64)>,
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

    pub(crate) fn push(&mut self, seconds: f64, bits: f64) {
        self.steps.push_back((seconds, bits));
        self.seconds += seconds;
        while let Some(&(oldest, _)) = self.steps.front()
            && self.seconds - oldest >= self.keep_s
        {
            self.steps.pop_front();
            self.seconds -= oldest;
        }
    }

    /// Mean rates over the last `count` spans of `span_s`, the newest first; the last one may be shorter.
    pub(crate) fn means(&self, span_s: f64, count: usize) -> impl Iterator<Item = f64> {
        let mut steps = self.steps.iter().rev().copied();
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
