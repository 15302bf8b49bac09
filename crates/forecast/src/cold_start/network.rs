//! The network: two layers of rectified units, and quantiles.

use std::sync::LazyLock;

use super::Beginning;
use super::beginning::{FEATURES, WITH_SIBLINGS};
use crate::types::QUANTILES;

/// Units of each layer.
const UNITS: usize = 48;
/// Means and standard deviations of the numbers; then, of each layer, a row of weights for each unit and its bias; then
/// what bands are widened by to hold on paths that it was not trained on. All are 32-bit numbers, the lowest byte first.
static WEIGHTS: LazyLock<Weights> =
    LazyLock::new(|| Weights::read(include_bytes!("weights.bin"), FEATURES));
/// The same for flows with siblings.
static WITH_SIBLINGS_WEIGHTS: LazyLock<Weights> =
    LazyLock::new(|| Weights::read(include_bytes!("siblings.bin"), WITH_SIBLINGS));

struct Weights {
    mean: Vec<f32>,
    deviation: Vec<f32>,
    layers: [Layer; 3],
    widening: f64,
}

struct Layer {
    /// Inputs of a unit, and one weight for each and the bias, unit by unit.
    inputs: usize,
    weights: Vec<f32>,
}

impl Layer {
    #[cfg(test)]
    fn units(&self) -> usize {
        self.weights.len() / (self.inputs + 1)
    }

    fn apply(&self, input: &[f32], output: &mut [f32]) {
        for (row, output) in self.weights.chunks_exact(self.inputs + 1).zip(output) {
            let products = row.iter().zip(input).map(|(weight, input)| weight * input);
            *output = products.sum::<f32>() + row[self.inputs];
        }
    }
}

impl Weights {
    fn read(bytes: &[u8], features: usize) -> Self {
        let mut numbers = (bytes.chunks_exact(4))
            .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]));
        let mut take = |count: usize| numbers.by_ref().take(count).collect::<Vec<f32>>();
        let (mean, deviation) = (take(features), take(features));
        let sizes = [features, UNITS, UNITS, QUANTILES.len()];
        let layers = std::array::from_fn(|layer| {
            let inputs = sizes[layer];
            let weights = take(sizes[layer + 1] * (inputs + 1));
            Layer { inputs, weights }
        });
        Self {
            mean,
            deviation,
            layers,
            widening: f64::from(numbers.next().unwrap_or(1.0)),
        }
    }
}

/// ln of the rate ahead at [`QUANTILES`], never decreasing.
pub(crate) fn outlook(beginning: &Beginning, horizon_s: f64) -> [f64; QUANTILES.len()] {
    let weights = match beginning.siblings {
        Some(_) => &WITH_SIBLINGS_WEIGHTS,
        None => &WEIGHTS,
    };
    let raw = forward(weights, &beginning.all_features(horizon_s));
    let reference = beginning.ln_reference();
    // the median, and what lies between neighboring quantiles
    let gap = |raw: f32| weights.widening * f64::from(raw).exp().ln_1p();
    let median = reference + f64::from(raw[2]);
    let (lower, upper) = (median - gap(raw[1]), median + gap(raw[3]));
    [
        lower - gap(raw[0]),
        lower,
        median,
        upper,
        upper + gap(raw[4]),
    ]
}

fn forward(weights: &Weights, features: &[f64]) -> [f32; QUANTILES.len()] {
    let mut input = [0.0_f32; WITH_SIBLINGS];
    let input = &mut input[..features.len()];
    for (i, input) in input.iter_mut().enumerate() {
        #[allow(clippy::cast_possible_truncation)] // precision enough
        let feature = features[i] as f32;
        // nothing is further from what was learned on than it reaches
        *input = ((feature - weights.mean[i]) / weights.deviation[i]).clamp(-4.0, 4.0);
    }
    let (mut first, mut second) = ([0.0; UNITS], [0.0; UNITS]);
    let mut output = [0.0; QUANTILES.len()];
    let rectify = |units: &mut [f32]| units.iter_mut().for_each(|unit| *unit = unit.max(0.0));
    weights.layers[0].apply(input, &mut first);
    rectify(&mut first);
    weights.layers[1].apply(&first, &mut second);
    rectify(&mut second);
    weights.layers[2].apply(&second, &mut output);
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_all_weights_and_no_more() {
        let alone = (&WEIGHTS, FEATURES, include_bytes!("weights.bin").len());
        let others = include_bytes!("siblings.bin").len();
        for (weights, features, bytes) in [alone, (&WITH_SIBLINGS_WEIGHTS, WITH_SIBLINGS, others)] {
            let counts = weights.layers.each_ref().map(Layer::units);
            assert_eq!(counts, [UNITS, UNITS, QUANTILES.len()]);
            let numbers = weights.layers.iter().map(|layer| layer.weights.len());
            let numbers = 2 * features + numbers.sum::<usize>() + 1;
            assert_eq!(bytes, 4 * numbers);
            assert!((1.0..1.5).contains(&weights.widening));
            assert!(weights.deviation.iter().all(|deviation| *deviation > 0.0));
        }
    }

    #[test]
    fn a_layer_is_a_matrix_and_a_bias() {
        let layer = Layer {
            inputs: 2,
            weights: vec![1.0, 2.0, 0.5, -1.0, 0.0, 3.0],
        };
        let mut output = [0.0; 2];
        layer.apply(&[10.0, 100.0], &mut output);
        assert_eq!(output, [210.5, -7.0]);
    }
}
