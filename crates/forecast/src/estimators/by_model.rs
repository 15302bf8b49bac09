//! One value for each model.

use std::ops::Index;

use serde::{Serialize, Serializer};

use super::{MODELS, Model};

/// One value for each model; as JSON an object with the models' names as keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ByModel<T>([T; MODELS.len()]);

impl<T> ByModel<T> {
    /// Asks for each model's value, in the order of [`MODELS`].
    pub fn from_fn(mut of: impl FnMut(Model) -> T) -> Self {
        Self(MODELS.map(&mut of))
    }

    /// Models and values, in the order of [`MODELS`].
    pub fn iter(&self) -> impl Iterator<Item = (Model, &T)> {
        MODELS.into_iter().zip(&self.0)
    }
}

impl<T> Index<Model> for ByModel<T> {
    type Output = T;

    fn index(&self, model: Model) -> &T {
        &self.0[model as usize]
    }
}

impl<T: Serialize> Serialize for ByModel<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(model, value)| (model.name(), value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_has_its_own_place() {
        let names = ByModel::from_fn(Model::name);
        for model in MODELS {
            assert_eq!(names[model], model.name());
        }
        let json = serde_json::to_value(names).unwrap();
        assert_eq!(json["hls_js"], "hls_js");
    }
}
