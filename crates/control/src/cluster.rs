//! Few templates for many prefixes: those of most prefixes stay, and each other one gives way to the kept one whose
//! prefixes have the most similar conditions.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Conditions, Model, Node};
use crate::template::Name;

/// Losses below this are alike.
const LEAST_LOSS: f64 = 1e-3;

/// Prefixes of one template: their number, and the center of their conditions, as logarithms.
#[derive(Debug, Clone, Copy, Default)]
struct Cluster {
    count: f64,
    sum: [f64; 3],
}

impl Cluster {
    fn add(&mut self, conditions: &Conditions) {
        let values = [
            conditions.bandwidth_mbps.ln(),
            conditions.rtt_ms.ln(),
            conditions.loss.max(LEAST_LOSS).ln(),
        ];
        self.count += 1.0;
        self.sum
            .iter_mut()
            .zip(values)
            .for_each(|(sum, value)| *sum += value);
    }

    fn distance(&self, other: &Self) -> f64 {
        let off = |i: usize| self.sum[i] / self.count - other.sum[i] / other.count;
        (0..3).map(|i| off(i) * off(i)).sum()
    }
}

/// A model with at most `most` templates beside `default`, by the conditions of prefixes. With no more than that, it is the
/// model as it was. Templates that no prefix calls for give way to `default`.
///
/// ```
/// use pathcast_control::{Conditions, Model, cluster::reduce};
/// let model = Model::read(br#"{"format":1,"templates":[{"name":"a","knobs":{}},{"name":"b","knobs":{}}],
///     "features":["rtt_ms"],"tree":{"feature":"rtt_ms","threshold":100,
///     "below":{"template":"a"},"otherwise":{"template":"b"}}}"#)?;
/// let path = |rtt_ms| Conditions { bandwidth_mbps: 5.0, rtt_ms, loss: 0.0 };
/// let reduced = reduce(&model, [path(50.0), path(60.0), path(200.0)], 1);
/// assert_eq!(reduced.decide(&path(200.0)).as_str(), "a");
/// # Ok::<(), pathcast_control::ControlError>(())
/// ```
pub fn reduce(model: &Model, prefixes: impl IntoIterator<Item = Conditions>, most: usize) -> Model {
    let mut named = BTreeSet::new();
    names(&model.tree, &mut named);
    named.retain(|name| !name.is_default());
    if named.len() <= most {
        return model.clone();
    }
    let mut clusters: BTreeMap<&Name, Cluster> = BTreeMap::new();
    for conditions in prefixes {
        clusters
            .entry(model.decide(&conditions))
            .or_default()
            .add(&conditions);
    }
    let mut by_count: Vec<(&Name, f64)> = clusters
        .iter()
        .filter(|one| !one.0.is_default())
        .map(|(name, one)| (*name, one.count))
        .collect();
    by_count.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let mut kept: BTreeSet<&Name> = by_count.into_iter().take(most).map(|one| one.0).collect();
    let default = Name::default_template();
    kept.insert(&default);
    let instead = |name: &Name| -> Name {
        if kept.contains(name) {
            return name.clone();
        }
        let Some(own) = clusters.get(name) else {
            return Name::default_template();
        };
        let near = kept
            .iter()
            .filter_map(|other| Some((other, clusters.get(*other)?.distance(own))));
        near.min_by(|a, b| a.1.total_cmp(&b.1))
            .map_or_else(Name::default_template, |(other, _)| (*other).clone())
    };
    Model {
        tree: renamed(&model.tree, &instead),
        ..model.clone()
    }
}

fn names(node: &Node, found: &mut BTreeSet<Name>) {
    match node {
        Node::Leaf(name) => {
            found.insert(name.clone());
        }
        Node::Split {
            below, otherwise, ..
        } => {
            names(below, found);
            names(otherwise, found);
        }
    }
}

fn renamed(node: &Node, instead: &dyn Fn(&Name) -> Name) -> Node {
    match node {
        Node::Leaf(name) => Node::Leaf(instead(name)),
        Node::Split {
            feature,
            threshold,
            below,
            otherwise,
        } => Node::Split {
            feature: *feature,
            threshold: *threshold,
            below: Box::new(renamed(below, instead)),
            otherwise: Box::new(renamed(otherwise, instead)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_templates_give_way_to_the_most_similar() {
        let split = |feature: &str, threshold: f64, below: &str, otherwise: &str| {
            format!(
                r#"{{"feature":"{feature}","threshold":{threshold},"below":{below},"otherwise":{otherwise}}}"#
            )
        };
        let leaf = |name: &str| format!(r#"{{"template":"{name}"}}"#);
        let far = split("rtt_ms", 300.0, &leaf("far"), &leaf("farther"));
        let tree = split(
            "rtt_ms",
            100.0,
            &split("loss", 0.01, &leaf("near"), &leaf("lossy")),
            &far,
        );
        let templates: Vec<String> = ["far", "farther", "near", "lossy"]
            .iter()
            .map(|name| format!(r#"{{"name":"{name}","knobs":{{}}}}"#))
            .collect();
        let text = format!(
            r#"{{"format":1,"templates":[{}],"features":["rtt_ms","loss"],"tree":{tree}}}"#,
            templates.join(",")
        );
        let model = Model::read(text.as_bytes()).unwrap();
        let path = |rtt_ms, loss| Conditions {
            bandwidth_mbps: 5.0,
            rtt_ms,
            loss,
        };
        let prefixes = [
            (50.0, 0.0),
            (60.0, 0.0),
            (200.0, 0.0),
            (250.0, 0.0),
            (400.0, 0.0),
        ]
        .map(|(rtt, loss)| path(rtt, loss));
        let decide = |model: &Model, rtt_ms, loss| model.decide(&path(rtt_ms, loss)).to_string();
        let two = reduce(&model, prefixes, 2);
        assert_eq!(decide(&two, 400.0, 0.0), "far");
        assert_eq!(decide(&two, 50.0, 0.0), "near");
        // no prefix calls for it
        assert_eq!(decide(&two, 50.0, 0.05), "default");
        assert_eq!(reduce(&model, prefixes, 4), model);
    }
}
