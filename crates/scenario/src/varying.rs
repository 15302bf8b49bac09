//! Sizes and times that may differ from one draw to the next.

use std::fmt::Display;
use std::str::FromStr;

use pathcast_path::reader::{Field, Read};
use pathcast_path::seed::uniform;
use pathcast_path::{Size, Span, UnitError};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How draws lie about their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// All are the mean.
    Fixed,
    /// Exponential: many short ones, the standard deviation is the mean.
    Exponential,
    /// Pareto with this tail index, more than 1: a few are most of the sum (Crovella and Bestavros
    /// 1997 find 1.1 to 1.3 for files on the web).
    Pareto(f64),
}

/// A size or a time by its mean and shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Varying<T> {
    /// The mean.
    pub mean: T,
    /// How draws lie about it.
    pub shape: Shape,
}

impl<T> Varying<T> {
    /// Always `value`.
    pub const fn fixed(value: T) -> Self {
        Self {
            mean: value,
            shape: Shape::Fixed,
        }
    }

    /// A draw, as a multiple of the mean. A fixed one draws nothing from `rng`.
    fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> f64 {
        match self.shape {
            Shape::Fixed => 1.0,
            Shape::Exponential => -libm::log(uniform(rng)),
            // the least value that makes the mean 1 is (a - 1) / a
            Shape::Pareto(index) => (index - 1.0) / index * libm::pow(uniform(rng), -1.0 / index),
        }
    }
}

impl Varying<Size> {
    /// A size drawn, at least one byte.
    pub(crate) fn bytes(&self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        let bytes = self.mean.as_bytes() as f64 * self.draw(rng);
        (bytes.round() as u64).max(1)
    }
}

impl Varying<Span> {
    /// A time drawn.
    pub(crate) fn span(&self, rng: &mut Xoshiro256PlusPlus) -> Span {
        Span::from_secs(self.mean.as_secs() * self.draw(rng))
    }
}

impl<T: FromStr<Err = UnitError>> Varying<T> {
    /// A value in a scenario file; `expected` says in errors what it may be.
    pub(crate) fn read(field: Field<'_, '_>, expected: &str) -> Read<Self> {
        if field.as_table().is_none() {
            return Ok(Self::fixed(field.quantity(expected)?));
        }
        let (kind, table) = field.kind(&[
            ("fixed", &["mean"]),
            ("exponential", &["mean"]),
            ("pareto", &["mean", "index"]),
        ])?;
        let mean = table.need("mean")?.quantity(expected)?;
        let shape = match kind {
            "fixed" => Shape::Fixed,
            "exponential" => Shape::Exponential,
            _ => Shape::Pareto(table.or("index", 1.2, |field| {
                match field.number("a number more than 1 such as 1.2")? {
                    index if index > 1.0 && index <= 1000.0 => Ok(index),
                    index => field.wrong(format_args!(
                        "got {index}, expected more than 1 and at most 1000: below there is no mean"
                    )),
                }
            })?),
        };
        Ok(Self { mean, shape })
    }
}

impl<T: Display> Varying<T> {
    pub(crate) fn to_toml(&self) -> String {
        let mean = &self.mean;
        match self.shape {
            Shape::Fixed => format!("\"{mean}\""),
            Shape::Exponential => format!("{{ kind = \"exponential\", mean = \"{mean}\" }}"),
            Shape::Pareto(index) => {
                format!("{{ kind = \"pareto\", mean = \"{mean}\", index = {index:?} }}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pathcast_path::seed::generator;

    use super::*;

    #[test]
    fn draws_have_the_mean_and_spread_of_their_shape() {
        for (shape, variance) in [
            (Shape::Fixed, 0.0),
            (Shape::Exponential, 1.0),
            (Shape::Pareto(4.0), 1.0 / 8.0), // 1 / (a (a - 2))
        ] {
            let mut rng = generator(1, "draws");
            let varying = Varying { mean: (), shape };
            let draws: Vec<f64> = (0..200_000).map(|_| varying.draw(&mut rng)).collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let spread =
                draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / draws.len() as f64;
            assert!((mean - 1.0).abs() < 0.01, "{shape:?}: {mean}");
            assert!((spread - variance).abs() < 0.03, "{shape:?}: {spread}");
        }
    }
}
