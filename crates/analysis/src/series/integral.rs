//! Time-weighted means.

/// Integral of a piecewise-constant series, for time-weighted means.
///
/// `upto(t)` is the integral from the first record to `t`, or 0 before the first. After the last
/// record, its value holds. The absolute error is that of summing doubles: below 1e-9 of the total.
#[derive(Debug, Clone, Default)]
pub struct Integral {
    time_s: Vec<f64>,
    value: Vec<f64>,
    total: Vec<f64>,
}

impl Integral {
    /// The integral of `value` held from each time to the next.
    pub fn new(time_s: &[f64], value: &[f64]) -> Self {
        let mut integral = Self::default();
        for (&t, &v) in time_s.iter().zip(value) {
            integral.push(t, v);
        }
        integral
    }

    /// Appends a record; times must not decrease.
    pub fn push(&mut self, time_s: f64, value: f64) {
        let total = match self.time_s.last() {
            Some(&last) => {
                let i = self.time_s.len() - 1;
                self.total[i] + self.value[i] * (time_s - last)
            }
            None => 0.0,
        };
        self.time_s.push(time_s);
        self.value.push(value);
        self.total.push(total);
    }

    /// Drops records that are not needed for times from `time_s` on.
    pub fn forget_before(&mut self, time_s: f64) {
        let old = self
            .time_s
            .partition_point(|&t| t <= time_s)
            .saturating_sub(1);
        self.time_s.drain(..old);
        self.value.drain(..old);
        self.total.drain(..old);
    }

    /// Integral from the first record to `time_s`.
    pub fn upto(&self, time_s: f64) -> f64 {
        let after = self.time_s.partition_point(|&t| t <= time_s);
        if after == 0 {
            return 0.0;
        }
        let i = after - 1;
        self.total[i] + self.value[i] * (time_s - self.time_s[i])
    }

    /// Time-weighted mean between two times, `to_s > from_s`.
    pub fn mean(&self, from_s: f64, to_s: f64) -> f64 {
        (self.upto(to_s) - self.upto(from_s)) / (to_s - from_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_integral_weighs_by_time() {
        let integral = Integral::new(&[0.0, 1.0, 3.0], &[10.0, 20.0, 40.0]);
        assert_eq!(integral.upto(3.0), 50.0);
        assert_eq!(integral.mean(0.5, 2.0), (5.0 + 20.0) / 1.5);
        assert_eq!(integral.mean(3.0, 5.0), 40.0);
    }
}
