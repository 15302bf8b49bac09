use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::*;

struct Rng(Xoshiro256PlusPlus);

impl Rng {
    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let u = self.uniform().max(1e-300);
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    fn poisson(&mut self, mean: f64) -> f64 {
        if mean > 50.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0);
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.uniform(), 0.0);
        while product > limit {
            product *= self.uniform();
            count += 1.0;
        }
        count
    }
}

fn client(prefix: &str, network: &str, region: &str) -> Client {
    Client {
        prefix: prefix.parse().unwrap(),
        network: Some(network.into()),
        region: Some(region.into()),
    }
}

type Evidence = Vec<(f64, f64, f64)>;

/// A client's windows: packets sent and losses met at each, with loss probability
/// `height * 1e-4 * (w / 50)^slope`.
fn draw(rng: &mut Rng, height: f64, slope: f64, packets: f64) -> Evidence {
    (0..16)
        .map(|i| {
            let w = 20.0 * (f64::from(i) * 0.1).exp();
            let p = height * 1e-4 * (w / 50.0).powf(slope);
            (w, packets / 16.0, rng.poisson(p * packets / 16.0))
        })
        .collect()
}

/// Log-likelihood of the losses at windows under a curve.
fn likelihood(curve: &ClusterCurve, evidence: &Evidence) -> f64 {
    (evidence.iter())
        .map(|&(w, packets, losses)| {
            let mean = curve.loss_probability(w).unwrap() * packets;
            losses * mean.ln() - mean - crate::gamma::ln_gamma(losses + 1.0)
        })
        .sum()
}

/// Nats per client that each method loses against the truth, on the clients' later behavior.
fn held_out(spreads: [f64; 3], seed: u64) -> Vec<(&'static str, f64)> {
    let mut rng = Rng(Xoshiro256PlusPlus::seed_from_u64(seed));
    let mut clusters = Clusters::default();
    let mut asked = vec![];
    for region in 0..3 {
        let region_height = (spreads[0] * rng.normal()).exp();
        let slope = 1.0 + 0.5 * rng.normal();
        for network in 0..5 {
            let network_height = region_height * (spreads[1] * rng.normal()).exp();
            for prefix in 0..12 {
                let height = network_height * (spreads[2] * rng.normal()).exp();
                let who = client(
                    &format!("10.{}.{prefix}.0/24", region * 16 + network),
                    &format!("AS{}", region * 16 + network),
                    &format!("region {region}"),
                );
                // from a short flow to hours of traffic; every third client is new
                let packets = 10.0_f64.powf(3.0 + 3.0 * rng.uniform());
                if prefix % 3 > 0 {
                    let evidence = draw(&mut rng, height, slope, packets);
                    clusters.add(&who, evidence, 0.0).unwrap();
                }
                asked.push((who, draw(&mut rng, height, slope, 1e5), height, slope));
            }
        }
    }
    let mut ways = vec![
        ("posterior", 0.0),
        ("mean", 0.0),
        ("median", 0.0),
        ("global", 0.0),
        ("own", 0.0),
    ];
    for (who, evidence, height, slope) in &asked {
        let curve = |pooling| {
            clusters.curve(
                Some(who.prefix),
                who.network.as_deref(),
                who.region.as_deref(),
                0.0,
                pooling,
            )
        };
        let global = clusters.curve(None, None, None, 0.0, Pooling::Posterior);
        let own = if clusters.closest(who.prefix).is_some() {
            clusters.curve(Some(who.prefix), Some(""), Some(""), 0.0, Pooling::Mean)
        } else {
            global.clone()
        };
        let truth = ClusterCurve {
            levels: vec![],
            points: (evidence.iter())
                .map(|&(w, ..)| ClusterPoint {
                    cwnd_packets: w,
                    loss_probability: height * 1e-4 * (w / 50.0).powf(*slope),
                    low: 0.0,
                    high: 1.0,
                })
                .collect(),
        };
        let best = likelihood(&truth, evidence);
        let curves = [
            curve(Pooling::Posterior),
            curve(Pooling::Mean),
            curve(Pooling::Median),
            global,
            own,
        ];
        for (way, curve) in ways.iter_mut().zip(&curves) {
            way.1 += (best - likelihood(curve, evidence)) / asked.len() as f64;
        }
    }
    ways
}

#[test]
fn held_out_clients_are_told_best_by_all_levels_together() {
    // standard deviations, in ln, of regions, of networks in a region, of prefixes in a network
    for spreads in [
        [0.8, 0.8, 0.3],
        [1.0, 0.3, 1.0],
        [0.2, 0.2, 0.2],
        [0.3, 1.2, 0.6],
    ] {
        let mut sums = vec![];
        for seed in 0..10 {
            let ways = held_out(spreads, seed);
            sums.resize(ways.len(), ("", 0.0));
            for (sum, way) in sums.iter_mut().zip(ways) {
                *sum = (way.0, sum.1 + way.1 / 10.0);
            }
        }
        println!("{spreads:?}: {sums:.2?}");
        let (posterior, others) = sums.split_first().unwrap();
        assert!(
            others.iter().all(|other| posterior.1 < 0.75 * other.1),
            "{sums:?}"
        );
    }
}

/// Evidence at 50 packets only.
fn at_fifty(packets: f64, losses: f64) -> [(f64, f64, f64); 1] {
    [(50.0, packets, losses)]
}

fn p(clusters: &Clusters, address: &str, now_s: f64) -> f64 {
    let address = Some(address.parse().unwrap());
    let curve = clusters.curve(address, None, None, now_s, Pooling::Posterior);
    curve.loss_probability(50.0).unwrap()
}

#[test]
fn the_longest_prefix_counts_of_either_family() {
    let mut clusters = Clusters::default();
    for prefix in [
        "0.0.0.0/0",
        "10.0.0.0/8",
        "10.1.0.0/16",
        "10.1.2.3",
        "2001:db8::/32",
        "2001:db8:1::/48",
    ] {
        clusters
            .add(&client(prefix, "n", "r"), at_fifty(1e4, 1.0), 0.0)
            .unwrap();
    }
    for (address, closest) in [
        ("10.1.2.3", Some("10.1.2.3/32")),
        ("10.1.2.4", Some("10.1.0.0/16")),
        ("10.2.0.1", Some("10.0.0.0/8")),
        ("192.0.2.1", Some("0.0.0.0/0")),
        ("2001:db8:1::9", Some("2001:db8:1::/48")),
        ("2001:db8:2::9", Some("2001:db8::/32")),
        ("2001:db9::1", None),
        ("10.1.0.0/12", None),
    ] {
        let Ok(address) = address.parse() else {
            continue;
        };
        let got = clusters.closest(address).map(|prefix| prefix.to_string());
        assert_eq!(got.as_deref(), closest, "{address}");
    }
}

#[test]
fn levels_weigh_by_their_evidence() {
    let mut clusters = Clusters::default();
    for i in 0..20 {
        let who = client(&format!("10.0.{i}.0/24"), "quiet", "r");
        clusters.add(&who, at_fifty(1e5, 2.0), 0.0).unwrap();
        let who = client(&format!("10.1.{i}.0/24"), "lossy", "r");
        clusters.add(&who, at_fifty(1e5, 200.0), 0.0).unwrap();
    }
    // a new prefix gets its network's estimate, give or take one loss
    clusters
        .add(
            &client("10.0.99.0/24", "quiet", "r"),
            at_fifty(1e3, 0.0),
            0.0,
        )
        .unwrap();
    assert!((p(&clusters, "10.0.99.1", 0.0) / 2e-5).ln().abs() < 0.3);
    let curve = clusters.curve(
        Some("10.0.99.1".parse().unwrap()),
        None,
        None,
        0.0,
        Pooling::Posterior,
    );
    let levels: Vec<Level> = curve.levels.iter().map(|level| level.level).collect();
    assert_eq!(
        levels,
        [Level::Prefix, Level::Network, Level::Region, Level::All]
    );
    assert!((curve.levels.iter().map(|level| level.weight).sum::<f64>() - 1.0).abs() < 1e-9);
    assert!(curve.levels[1].weight > 0.8, "{:?}", curve.levels);
    // a client with a thousand losses gets its own estimate
    clusters
        .add(
            &client("10.0.98.0/24", "quiet", "r"),
            at_fifty(1e5, 1000.0),
            0.0,
        )
        .unwrap();
    assert!((p(&clusters, "10.0.98.1", 0.0) / 1e-2).ln().abs() < 0.05);
    // its bounds are narrower than those of a new client
    let width = |network: Option<&str>, address: Option<&str>| {
        let address = address.map(|address| address.parse().unwrap());
        let curve = clusters.curve(address, network, None, 0.0, Pooling::Posterior);
        curve.points[0].high / curve.points[0].low
    };
    assert!(width(None, Some("10.0.98.1")) < width(Some("quiet"), None));
    assert!(width(Some("lossy"), None) < width(None, None));
}

#[test]
fn without_any_evidence_there_is_no_curve() {
    for pooling in [Pooling::Posterior, Pooling::Mean, Pooling::Median] {
        let mut clusters = Clusters::default();
        let address = Some("10.0.0.1".parse().unwrap());
        let empty = clusters.curve(address, Some("n"), None, 0.0, pooling);
        assert_eq!((empty.levels.len(), empty.points.len()), (0, 0));
        clusters
            .add(&client("10.0.0.0/8", "n", "r"), [], 0.0)
            .unwrap();
        let none = clusters.curve(address, Some("n"), None, 0.0, pooling);
        assert!(none.points.is_empty() && none.loss_probability(5.0).is_none());
    }
}

#[test]
fn evidence_fades_and_can_be_taken_away() {
    let week_s = 7.0 * 86_400.0;
    let mut clusters = Clusters::default();
    let who = client("10.0.0.0/24", "n", "r");
    clusters.add(&who, at_fifty(1e6, 1000.0), 0.0).unwrap();
    clusters
        .add(&who, at_fifty(1e6, 10.0), 5.0 * week_s)
        .unwrap();
    // evidence from five weeks ago has weight e^-5
    let (old, new) = ((-5.0_f64).exp(), 1e6);
    let wanted = (1000.0 * old + 10.0) / (1e6 * old + new);
    assert!((p(&clusters, "10.0.0.1", 5.0 * week_s) / wanted).ln().abs() < 0.05);
    clusters
        .add(&client("10.0.1.0/24", "n", "r"), at_fifty(1e3, 5.0), 0.0)
        .unwrap();
    clusters.remove(who.prefix).unwrap();
    assert_eq!(clusters.len(), 1);
    assert_eq!(
        clusters.remove(who.prefix),
        Err(ClusterError::Unknown(who.prefix))
    );
    assert!(p(&clusters, "10.0.0.1", 0.0) > 3e-3);
}

#[test]
fn what_is_no_evidence_is_refused_and_nothing_added() {
    let mut clusters = Clusters::default();
    let who = client("10.0.0.0/24", "n", "r");
    for bad in [
        (0.0, 1.0, 0.0),
        (5.0, 0.0, 0.0),
        (5.0, 1.0, -1.0),
        (f64::NAN, 1.0, 0.0),
        (5.0, f64::INFINITY, 0.0),
    ] {
        let error = clusters.add(&who, [(5.0, 1.0, 0.0), bad], 0.0).unwrap_err();
        assert!(matches!(error, ClusterError::BadEvidence(_)));
    }
    for name in ["", "a\nb", &"x".repeat(101)] {
        let error = clusters
            .add(&client("10.0.0.0/24", name, "r"), [], 0.0)
            .unwrap_err();
        assert!(matches!(
            error,
            ClusterError::BadName {
                what: "network",
                ..
            }
        ));
    }
    assert!(clusters.is_empty());
}

#[test]
fn a_store_comes_back_and_one_that_lies_is_refused() {
    let mut clusters = Clusters::default();
    let mut rng = Rng(Xoshiro256PlusPlus::seed_from_u64(1));
    for i in 0..50 {
        let who = client(&format!("2001:db8:{i:x}::/48"), "n", "r");
        let evidence = draw(&mut rng, 1.0, 1.0, 1e5);
        clusters.add(&who, evidence, f64::from(i)).unwrap();
    }
    let text = serde_json::to_string(&Stored::from(&clusters)).unwrap();
    let read = |text: &str| -> Result<Clusters, String> {
        let stored: Stored = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Clusters::try_from(stored).map_err(|error| error.to_string())
    };
    assert_eq!(read(&text).unwrap(), clusters);
    let with = |client: &str| format!(r#"{{"clusters_version":1,"clients":[{client}]}}"#);
    let good = r#"{"prefix":"10.0.0.0/8","updated_s":0.0,"counts":[[3,5.0,1.0]]}"#;
    assert!(read(&with(good)).is_ok());
    for (text, said) in [
        (
            with(good).replace(":1,", ":2,"),
            "clusters_version is 2, expected 1",
        ),
        (with(&good.replace("/8", "/99")), "out of range"),
        (with(&good.replace("[3,", "[120,")), "a bin below 120"),
        (with(&good.replace("5.0,", "-5.0,")), "packets > 0"),
        (with(&good.replace("1.0]", "1e400]")), "out of range"),
        (with(&good.replace("]]", "],[3,5.0,1.0]]")), "bin 3 twice"),
        (with(&format!("{good},{good}")), "10.0.0.0/8 twice"),
        (with(&good.replace("counts", "coutns")), "unknown field"),
        ("[]".into(), "invalid"),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
}
