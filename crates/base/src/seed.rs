//! One seeded generator for each element, so that adding an element leaves the others' draws alone.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// The generator of the element called `element` in the run with seed `seed`.
///
/// The name is hashed (FNV-1a) into the seed, and `seed_from_u64` spreads it over the state.
pub fn generator(seed: u64, element: &str) -> Xoshiro256PlusPlus {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in element.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    Xoshiro256PlusPlus::seed_from_u64(hash)
}

/// A uniform draw from `(0, 1]`, with 53 random bits.
#[inline]
pub fn uniform(rng: &mut Xoshiro256PlusPlus) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_draw_apart_and_repeat() {
        let draw = |seed, element| generator(seed, element).next_u64();
        assert_eq!(draw(1, "forward.loss"), draw(1, "forward.loss"));
        assert_ne!(draw(1, "forward.loss"), draw(1, "reverse.loss"));
        assert_ne!(draw(1, "forward.loss"), draw(2, "forward.loss"));
    }
}
