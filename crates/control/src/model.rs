//! What the learner makes: templates, and a decision tree from a path's conditions to a template.

use serde::{Deserialize, Serialize};

use crate::error::{ControlError, FORMAT, invalid, read};
use crate::template::{Name, Template, by_name};

/// Deepest tree; the reader of JSON has its own limit of 128 levels.
const DEEPEST: usize = 64;
/// Most nodes.
const MOST_NODES: usize = 10_000;

/// Conditions of a path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// Bandwidth, Mbit/s.
    pub bandwidth_mbps: f64,
    /// Round-trip time, milliseconds.
    pub rtt_ms: f64,
    /// Share of packets lost: 0 to 1.
    pub loss: f64,
}

/// A condition that a tree decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// Bandwidth, Mbit/s.
    BandwidthMbps,
    /// Round-trip time, milliseconds.
    RttMs,
    /// Share of packets lost.
    Loss,
}

impl Feature {
    /// Its value in given conditions.
    pub fn of(self, conditions: &Conditions) -> f64 {
        match self {
            Self::BandwidthMbps => conditions.bandwidth_mbps,
            Self::RttMs => conditions.rtt_ms,
            Self::Loss => conditions.loss,
        }
    }
}

/// A node of a decision tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawNode", into = "RawNode")]
pub enum Node {
    /// A decision.
    Leaf(Name),
    /// A question: is the feature below the threshold?
    Split {
        /// What is compared.
        feature: Feature,
        /// With what.
        threshold: f64,
        /// If the value is less.
        below: Box<Node>,
        /// If it is not.
        otherwise: Box<Node>,
    },
}

/// A node as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNode {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    template: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    feature: Option<Feature>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    threshold: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    below: Option<Box<Node>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    otherwise: Option<Box<Node>>,
}

impl TryFrom<RawNode> for Node {
    type Error = ControlError;

    fn try_from(raw: RawNode) -> Result<Self, ControlError> {
        match (
            raw.template,
            raw.feature,
            raw.threshold,
            raw.below,
            raw.otherwise,
        ) {
            (Some(name), None, None, None, None) => Ok(Self::Leaf(name)),
            (None, Some(feature), Some(threshold), Some(below), Some(otherwise)) => {
                if !threshold.is_finite() {
                    return Err(invalid(
                        "tree",
                        format!("threshold is {threshold}, expected a finite number"),
                    ));
                }
                Ok(Self::Split {
                    feature,
                    threshold,
                    below,
                    otherwise,
                })
            }
            _ => Err(invalid(
                "tree",
                "a node has neither template alone nor feature, threshold, below and otherwise",
            )),
        }
    }
}

impl From<Node> for RawNode {
    fn from(node: Node) -> Self {
        let none = Self {
            template: None,
            feature: None,
            threshold: None,
            below: None,
            otherwise: None,
        };
        match node {
            Node::Leaf(name) => Self {
                template: Some(name),
                ..none
            },
            Node::Split {
                feature,
                threshold,
                below,
                otherwise,
            } => Self {
                feature: Some(feature),
                threshold: Some(threshold),
                below: Some(below),
                otherwise: Some(otherwise),
                ..none
            },
        }
    }
}

/// What the learner makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Format of this text; at most [`FORMAT`].
    pub format: u32,
    /// The templates that leaves name.
    pub templates: Vec<Template>,
    /// The features that the tree may use.
    pub features: Vec<Feature>,
    /// The tree.
    pub tree: Node,
}

impl Model {
    /// A checked model.
    ///
    /// # Errors
    /// [`ControlError::Invalid`] as [`Self::read`].
    pub fn new(
        templates: Vec<Template>,
        features: Vec<Feature>,
        tree: Node,
    ) -> Result<Self, ControlError> {
        let model = Self {
            format: FORMAT,
            templates,
            features,
            tree,
        };
        model.check()?;
        Ok(model)
    }

    /// Reads and checks a model.
    ///
    /// # Errors
    /// [`ControlError`] if the format is newer, a key is unknown or missing, a template is invalid, or the tree names a
    /// template or feature that is not there, is deeper than 64 levels, or has more than 10,000 nodes.
    pub fn read(bytes: &[u8]) -> Result<Self, ControlError> {
        let model: Self = read("model", bytes)?;
        model.check()?;
        Ok(model)
    }

    fn check(&self) -> Result<(), ControlError> {
        let named = by_name(&self.templates)?;
        let mut open = vec![(&self.tree, 1)];
        let mut nodes = 0;
        while let Some((node, depth)) = open.pop() {
            nodes += 1;
            if depth > DEEPEST || nodes > MOST_NODES {
                let message = format!("expected at most {DEEPEST} levels and {MOST_NODES} nodes");
                return Err(invalid("tree", message));
            }
            match node {
                Node::Leaf(name) if !(name.is_default() || named.contains_key(name)) => {
                    let message =
                        format!("a leaf has {name}, expected a name among templates, or default");
                    return Err(invalid("tree", message));
                }
                Node::Leaf(_) => {}
                Node::Split {
                    feature,
                    threshold,
                    below,
                    otherwise,
                } => {
                    if !self.features.contains(feature) || !threshold.is_finite() {
                        let message = format!(
                            "a node compares {feature:?} with {threshold}, expected one of features and a finite number"
                        );
                        return Err(invalid("tree", message));
                    }
                    open.extend([(&**below, depth + 1), (&**otherwise, depth + 1)]);
                }
            }
        }
        Ok(())
    }

    /// The text.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it has text keys and finite numbers")
    }

    /// The template for these conditions.
    ///
    /// # Example
    /// ```
    /// use pathcast_control::{Conditions, Model};
    /// let model = Model::read(br#"{"format":1,"templates":[{"name":"lossy","knobs":{"congestion_control":"bbr"}}],
    ///     "features":["loss"],"tree":{"feature":"loss","threshold":0.01,
    ///     "below":{"template":"default"},"otherwise":{"template":"lossy"}}}"#)?;
    /// let path = Conditions { bandwidth_mbps: 5.0, rtt_ms: 150.0, loss: 0.025 };
    /// assert_eq!(model.decide(&path).as_str(), "lossy");
    /// # Ok::<(), pathcast_control::ControlError>(())
    /// ```
    pub fn decide(&self, conditions: &Conditions) -> &Name {
        let mut node = &self.tree;
        loop {
            match node {
                Node::Leaf(name) => return name,
                Node::Split {
                    feature,
                    threshold,
                    below,
                    otherwise,
                } => {
                    node = if feature.of(conditions) < *threshold {
                        below
                    } else {
                        otherwise
                    };
                }
            }
        }
    }

    /// Whether the template may stand where the conditions lie within a relative margin of thresholds.
    pub fn allows(&self, name: &Name, conditions: &Conditions, margin: f64) -> bool {
        let mut open = vec![&self.tree];
        while let Some(node) = open.pop() {
            match node {
                Node::Leaf(leaf) if leaf == name => return true,
                Node::Leaf(_) => {}
                Node::Split {
                    feature,
                    threshold,
                    below,
                    otherwise,
                } => {
                    let value = feature.of(conditions);
                    let slack = margin * threshold.abs();
                    if value < threshold + slack {
                        open.push(below);
                    }
                    if value >= threshold - slack {
                        open.push(otherwise);
                    }
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = r#"{"feature":"loss","threshold":0.01,"below":{"feature":"rtt_ms","threshold":100.0,"below":{"template":"default"},"otherwise":{"template":"far"}},"otherwise":{"template":"lossy"}}"#;

    fn text(tree: &str) -> String {
        format!(
            r#"{{"format":1,"templates":[{{"name":"far","knobs":{{"initial_window":40}}}},{{"name":"lossy","knobs":{{"congestion_control":"bbr"}}}}],"features":["rtt_ms","loss"],"tree":{tree}}}"#
        )
    }

    #[test]
    fn a_tree_decides_by_its_thresholds() {
        let model = Model::read(text(TREE).as_bytes()).unwrap();
        assert_eq!(Model::read(&model.to_json()).unwrap(), model);
        let decide = |rtt_ms, loss| {
            let conditions = Conditions {
                bandwidth_mbps: 1.0,
                rtt_ms,
                loss,
            };
            model.decide(&conditions).as_str().to_string()
        };
        assert_eq!(decide(50.0, 0.0), "default");
        assert_eq!(decide(100.0, 0.0), "far");
        assert_eq!(decide(50.0, 0.01), "lossy");
    }

    #[test]
    fn near_a_threshold_both_sides_are_allowed() {
        let model = Model::read(text(TREE).as_bytes()).unwrap();
        let allows = |name: &str, rtt_ms| {
            let conditions = Conditions {
                bandwidth_mbps: 1.0,
                rtt_ms,
                loss: 0.0,
            };
            model.allows(&name.parse().unwrap(), &conditions, 0.1)
        };
        assert!(allows("far", 95.0) && allows("default", 105.0));
        assert!(!allows("far", 85.0) && !allows("default", 115.0) && !allows("lossy", 100.0));
    }

    #[test]
    fn invalid_trees_are_refused() {
        let deep = (0..70).fold(r#"{"template":"far"}"#.to_string(), |inner, _| {
            format!(r#"{{"feature":"loss","threshold":0.1,"below":{inner},"otherwise":{{"template":"far"}}}}"#)
        });
        for (tree, said) in [
            (r#"{"template":"near"}"#, "a leaf has near"),
            (
                r#"{"template":"far","threshold":1}"#,
                "neither template alone",
            ),
            (
                r#"{"feature":"loss","threshold":1}"#,
                "neither template alone",
            ),
            (r#"{}"#, "neither template alone"),
            (r#"{"template":"far","x":1}"#, "unknown field"),
            (
                r#"{"feature":"bandwidth_mbps","threshold":1,"below":{"template":"far"},"otherwise":{"template":"far"}}"#,
                "expected one of features",
            ),
            (&deep, "64 levels"),
        ] {
            let error = Model::read(text(tree).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(said), "{tree}: {error}");
        }
    }
}
