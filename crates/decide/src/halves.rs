//! The halves of a sliding window: what is old goes by halves.

/// Moves on to the half in which `now_s` lies, if that is a later one. Returns how many halves that is, and where the moment
/// belongs: 0 in the current half, 1 in the one before. What comes late, as from another host, moves nothing; a clock that was
/// set back by more than a half forgets nothing.
pub(crate) fn go_on(current: &mut i64, now_s: f64, half_s: f64) -> (i64, usize) {
    #[allow(clippy::cast_possible_truncation)] // saturates
    let half = (now_s / half_s).floor() as i64;
    match half.saturating_sub(*current) {
        0 => (0, 0),
        -1 => (0, 1),
        ahead => {
            *current = half;
            (ahead.max(0), 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_moments_belong_to_the_half_before_and_move_nothing() {
        let mut half = 0;
        assert_eq!(go_on(&mut half, 1000.0, 10.0), (100, 0));
        assert_eq!(go_on(&mut half, 1009.0, 10.0), (0, 0));
        assert_eq!(go_on(&mut half, 1010.0, 10.0), (1, 0));
        assert_eq!(go_on(&mut half, 1009.9, 10.0), (0, 1));
        assert_eq!(go_on(&mut half, 1010.1, 10.0), (0, 0));
        // set back by an hour
        assert_eq!(go_on(&mut half, -2590.0, 10.0), (0, 0));
        assert_eq!(go_on(&mut half, -2580.0, 10.0), (1, 0));
    }
}
