use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::*;

fn uniform(rng: &mut Xoshiro256PlusPlus) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Random records: time, window, packets, lost.
fn random_records(seed: u64, count: u32, p: impl Fn(f64) -> f64) -> Vec<(f64, f64, f64, bool)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut time_s, mut cwnd) = (0.0, 40.0);
    (0..count)
        .map(|_| {
            time_s += 0.1;
            // one window a record
            let lost = uniform(&mut rng) < 1.0 - (1.0 - p(cwnd)).powf(cwnd);
            let record = (time_s, cwnd, cwnd, lost);
            cwnd = if lost {
                (cwnd * 0.5).max(2.0)
            } else {
                cwnd + 1.0
            };
            record
        })
        .collect()
}

fn fed(records: &[(f64, f64, f64, bool)], npc: u32) -> OnlineCurve {
    let mut curve = OnlineCurve::new(WINDOW_S).unwrap();
    for &(time_s, cwnd, packets, lost) in records {
        curve.sent(time_s, cwnd, npc, packets);
        if lost {
            curve.lost(time_s, cwnd, npc);
        }
    }
    curve
}

#[test]
fn the_window_holds_what_is_no_older_than_it_and_nothing_older_than_a_tenth_more() {
    let records = random_records(1, 5000, |_| 1e-3);
    let mut curve = OnlineCurve::new(WINDOW_S).unwrap();
    for (i, &(time_s, cwnd, packets, lost)) in records.iter().enumerate() {
        curve.sent(time_s, cwnd, 1, packets);
        if lost {
            curve.lost(time_s, cwnd, 1);
        }
        if i % 97 == 0 {
            let slot_s = WINDOW_S / 10.0;
            let from_s = ((time_s / slot_s).floor() - 10.0) * slot_s;
            let inside = records[..=i].iter().filter(|record| record.0 >= from_s);
            let (packets, losses) = inside.fold((0.0, 0), |sum, record| {
                (sum.0 + record.2, sum.1 + u32::from(record.3))
            });
            let basis = curve.basis(1).unwrap();
            assert!((basis.packets / packets - 1.0).abs() < 1e-5, "{basis:?}");
            assert_eq!(basis.losses, losses);
            let counted: (f64, f64) =
                (curve.counted(1)).fold((0.0, 0.0), |sum, at| (sum.0 + at.1, sum.1 + at.2));
            assert!((counted.0 / packets - 1.0).abs() < 1e-5);
            assert_eq!(counted.1 as u32, losses);
        }
    }
}

#[test]
fn a_path_takes_a_few_kilobytes_however_much_comes() {
    let mut curve = OnlineCurve::new(WINDOW_S).unwrap();
    // every bin in each tenth of the window, which exceeds the space
    for second in 0..500_u32 {
        for bin in 0..BINS {
            curve.sent(f64::from(second), SCALES.cwnd_packets(bin), 1, 10.0);
        }
    }
    assert!(curve.memory_bytes() < 6_600, "{}", curve.memory_bytes());
    assert!(curve.basis(1).unwrap().packets > 10.0 * f64::from(BINS as u32));
    for npc in 1..100 {
        curve.sent(600.0, 50.0, npc, 10.0);
    }
    assert!(curve.memory_bytes() < 4 * 6_600, "{}", curve.memory_bytes());
    assert_eq!(curve.bases().len(), NPCS);
    assert_eq!(curve.bases()[0].npc, 99);
}

#[test]
fn bounds_hold_the_truth_about_as_often_as_they_say() {
    type Truth = fn(f64) -> f64;
    let truths: [(&str, Truth); 4] = [
        ("1e-3", |_| 1e-3),
        ("1e-4", |_| 1e-4),
        ("rising", |w| 1e-5 * (w / 20.0).powi(2)),
        // non-monotonic, as in the paper's figure 3
        ("valley", |w| 1e-4 * (1.0 + (w / 60.0).ln().powi(2) * 3.0)),
    ];
    for (name, p) in truths {
        let (mut inside, mut below, mut asked) = (0, 0, 0);
        for seed in 0..200 {
            let records = random_records(seed, 1000, p);
            let curve = fed(&records, 1);
            // at the windows that the flow is at
            for &(_, cwnd, _, _) in records.iter().rev().take(1000).step_by(100) {
                let at = curve.at(cwnd, 1).unwrap();
                asked += 1;
                inside += u32::from(at.low <= p(cwnd) && p(cwnd) <= at.high);
                below += u32::from(p(cwnd) <= at.high);
            }
        }
        let part = f64::from(inside) / f64::from(asked);
        println!(
            "{name}: {part:.3} inside, {:.3} below the upper",
            f64::from(below) / f64::from(asked)
        );
        assert!((0.84..=0.995).contains(&part), "{name}: {part}");
    }
}

#[test]
fn without_losses_the_rule_of_three_bounds_it() {
    let mut curve = OnlineCurve::new(WINDOW_S).unwrap();
    assert_eq!(curve.at(50.0, 1), None);
    curve.sent(0.0, 50.0, 1, 10_000.0);
    let at = curve.at(70.0, 1).unwrap();
    assert_eq!((at.low, at.high), (0.0, 3e-4));
    assert_eq!(at.source, CurveSource::NoLoss);
    assert_eq!(curve.basis(1).unwrap().upper_bound, Some(3e-4));
    // no loss in 10,000 packets has a probability of one half here
    assert!(((1.0 - at.loss_probability).powi(10_000) - 0.5).abs() < 1e-4);
}

#[test]
fn one_loss_moves_its_neighbourhood_and_keeps_wide_bounds() {
    let mut curve = OnlineCurve::new(WINDOW_S).unwrap();
    for w in 50..=100 {
        curve.sent(1.0, f64::from(w), 1, 200.0);
    }
    curve.lost(1.0, 100.0, 1);
    let (near, far) = (curve.at(100.0, 1).unwrap(), curve.at(55.0, 1).unwrap());
    assert!(near.loss_probability > far.loss_probability);
    for at in [near, far] {
        assert!(at.low < 1e-4 && 1e-4 < at.high, "{at:?}");
        assert_eq!(at.source, CurveSource::Own);
    }
    assert!(near.high > 10.0 * near.low);
}

#[test]
fn a_withdrawn_loss_leaves_nothing() {
    let mut curve = OnlineCurve::new(WINDOW_S).unwrap();
    curve.sent(1.0, 50.0, 1, 1000.0);
    curve.lost(1.0, 50.0, 1);
    curve.sent(25.0, 50.0, 1, 1000.0); // the loss is in a past slot by now
    curve.not_lost(25.0, 50.0, 1);
    assert_eq!(curve.basis(1).unwrap().losses, 0);
    assert_eq!(curve.at(50.0, 1).unwrap().source, CurveSource::NoLoss);
    curve.not_lost(25.0, 50.0, 1); // and one that never was
    assert_eq!(curve.basis(1).unwrap().losses, 0);
}

#[test]
fn flows_of_another_number_are_the_prior_until_there_are_own_losses() {
    let mut curve = OnlineCurve::new(WINDOW_S).unwrap();
    // alone, the flow loses packets at 400
    for w in 200..400 {
        curve.sent(1.0, f64::from(w), 1, 1000.0);
    }
    for _ in 0..20 {
        curve.lost(1.0, 399.0, 1);
    }
    // four flows fill the same queue at 100 packets each
    let wall = curve.at(99.0, 4).unwrap();
    let below = curve.at(60.0, 4).unwrap();
    assert_eq!(wall.source, CurveSource::OtherNpc);
    assert!(
        wall.loss_probability > 20.0 * below.loss_probability,
        "{wall:?} {below:?}"
    );
    // 300 losses in 300,000 packets of their own contradict this
    for _ in 0..300 {
        curve.sent(2.0, 99.0, 4, 1000.0);
        curve.lost(2.0, 99.0, 4);
    }
    let own = curve.at(99.0, 4).unwrap();
    assert_eq!(own.source, CurveSource::Own);
    assert!((own.loss_probability / 1e-3 - 1.0).abs() < 0.02, "{own:?}");
    let same = curve.clone().across(Across::SameWindow);
    assert!(same.at(398.0, 8).unwrap().loss_probability > 1e-3);
    assert!(curve.at(398.0, 8).unwrap().loss_probability < 2e-3);
}

#[test]
fn a_clock_that_is_set_back_begins_anew_and_a_small_step_back_does_not() {
    let mut curve = OnlineCurve::new(WINDOW_S).unwrap();
    curve.sent(5000.0, 50.0, 1, 1000.0);
    curve.sent(4950.0, 50.0, 1, 1000.0);
    assert_eq!(curve.basis(1).unwrap().packets, 2000.0);
    curve.sent(1400.0, 50.0, 1, 10.0);
    assert_eq!(curve.basis(1).unwrap().packets, 10.0);
    curve.sent(1550.0, 50.0, 1, 10.0);
    assert_eq!(curve.basis(1).unwrap().packets, 10.0);
}

#[test]
fn what_is_stored_comes_back_and_goes_on_alike() {
    let records = random_records(7, 3000, |_| 1e-3);
    let mut curve = fed(&records[..2000], 3);
    curve.sent(records[1999].0, 70.0, 1, 5.0);
    let text = serde_json::to_string(&curve).unwrap();
    assert!(text.len() < 12_000, "{}", text.len());
    let mut back: OnlineCurve = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
    for &(time_s, cwnd, packets, lost) in &records[2000..] {
        for curve in [&mut curve, &mut back] {
            curve.sent(time_s, cwnd, 3, packets);
            if lost {
                curve.lost(time_s, cwnd, 3);
            }
        }
    }
    assert_eq!(curve.at(50.0, 3), back.at(50.0, 3));
}

#[test]
fn a_store_that_lies_is_refused() {
    let stored = |cells: &str| {
        format!(
            r#"{{"window_s":100.0,"across":"same_total","curves":[{{"npc":1,"slot":5,"cells":{cells}}}]}}"#
        )
    };
    assert!(serde_json::from_str::<OnlineCurve>(&stored("[[3,9,5.0,1],[0,9,5.0,1]]")).is_ok());
    for (cells, said) in [
        ("[[11,9,5.0,1]]", "11 slots ago"),
        ("[[0,240,5.0,1]]", "bins below 240"),
        ("[[0,9,-1.0,1]]", "-1 packets"),
        ("[[0,9,1e30,1]]", "packets"),
        ("[[0,9,5.0,1],[3,9,5.0,1]]", "do not increase"),
    ] {
        let error = serde_json::from_str::<OnlineCurve>(&stored(cells)).unwrap_err();
        assert!(error.to_string().contains(said), "{cells}: {error}");
    }
    let many = format!("[{}]", vec!["[0,9,5.0,1]"; 1000].join(","));
    assert!(serde_json::from_str::<OnlineCurve>(&stored(&many)).is_err());
    let window = stored("[]").replace("100.0", "-1.0");
    assert!(serde_json::from_str::<OnlineCurve>(&window).is_err());
}

#[test]
fn a_feed_finds_the_losses_that_the_detector_finds() {
    use crate::{Series, find_epochs};
    use pathcast_window_law::Cc;
    let records = random_records(3, 900, |_| 5e-4);
    let (time, cwnd): (Vec<f64>, Vec<f64>) = records.iter().map(|r| (r.0, r.1)).unzip();
    let found = find_epochs(&Series::new(time, cwnd).unwrap(), Cc::Reno, 0.1);
    let mut curve = OnlineCurve::new(WINDOW_S).unwrap();
    let mut feed = CurveFeed::new(Cc::Reno, Some(0.1));
    let mut packets = 0.0;
    for (i, &(time_s, cwnd_packets, _, _)) in records.iter().enumerate() {
        let record = FlowRecord {
            time_s,
            cwnd_packets,
            snd_nxt_packets: Some(30.0 * i as f64),
            srtt_s: None,
            npc: 1,
        };
        packets += feed.observe(&record, &mut curve).packets;
    }
    assert_eq!(packets, 30.0 * 899.0);
    let basis = curve.basis(1).unwrap();
    assert_eq!(basis.losses as usize, found.losses.len());
    assert!((basis.packets - packets).abs() < 1.0);
}

proptest! {
    #[test]
    fn nothing_that_comes_breaks_it(
        steps in prop::collection::vec(
            (0..6_u8, any::<f64>(), any::<f64>(), 0..7_u32, any::<f64>()), 0..60),
    ) {
        let mut curve = OnlineCurve::new(WINDOW_S).unwrap();
        for (what, time_s, cwnd, npc, packets) in steps {
            match what {
                0 => curve.sent(time_s, cwnd, npc, packets),
                1 => curve.lost(time_s, cwnd, npc),
                2 => curve.not_lost(time_s, cwnd, npc),
                3 => curve.forget_before(time_s),
                4 => curve.sent(packets % 1000.0, 1.0 + cwnd.abs() % 1000.0, npc, 10.0),
                _ => curve.lost(packets % 1000.0, 1.0 + cwnd.abs() % 1000.0, npc),
            }
            if let Some(at) = curve.at(50.0, npc) {
                prop_assert!(at.low <= at.loss_probability && at.loss_probability <= at.high, "{at:?}");
                prop_assert!(at.high <= 1.0);
            }
        }
    }
}
