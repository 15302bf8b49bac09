//! How well loss curves say what comes next: `cargo run --release -p pathcast-forecast --example curve_table -- FOLDER`.
//!
//! FOLDER holds `NAME.cwnd.csv.gz` (time_s, cwnd_packets), as the ECON authors' traces do. Each second
//! of a trace, from 100 s on, is judged by what came before it: losses as a Poisson process with
//! probability p(cwnd) a packet, in nats per loss. More is better; a flat curve of the right height is
//! what the others are compared with.

#[path = "../tests/common/mod.rs"]
mod common;

use pathcast_analysis::hazard::Hazard;
use pathcast_analysis::online_curve::{CurveFeed, FlowRecord, OnlineCurve};
use pathcast_analysis::{Counting, FitOptions, LossCurve, Series, find_epochs, fit};
use pathcast_window_law::Cc;

fn main() {
    let folder = common::given_or_folder(std::env::args().nth(1));
    println!(
        "trace, losses; nats per loss more than a flat curve of the last 100 s: paper's, hazard, online"
    );
    for trace in common::traces(&folder) {
        let series = common::series(&folder, &trace);
        let cc = if trace.starts_with("reno") {
            Cc::Reno
        } else {
            Cc::Cubic
        };
        judge(&trace, &series, cc);
    }
}

fn judge(name: &str, series: &Series, cc: Cc) {
    let options = FitOptions {
        cc: Some(cc),
        counting: Some(Counting::Time),
        ..FitOptions::default()
    };
    let rtt_s = fit(series, &options).rtt_s;
    let found = find_epochs(series, cc, rtt_s);
    let (time, cwnd) = (series.time_s(), series.cwnd_packets());
    let mut online = OnlineCurve::new(100.0).expect("a time");
    let mut feed = CurveFeed::new(cc, Some(rtt_s));
    let mut hazard = Hazard::default();
    let mut paper: Option<LossCurve> = None;
    let (mut next_s, mut from, mut loss, mut counted) = (series.start_s(), 0, 0, 0);
    let mut nats = [0.0; 4];
    for i in 1..series.len() {
        let now_s = time[i - 1];
        if now_s - series.start_s() > 100.0 {
            let packets = cwnd[i - 1] * (time[i] - time[i - 1]) / rtt_s;
            let flat = online
                .basis(1)
                .map_or(1e-4, |b| (f64::from(b.losses) + 0.5) / b.packets);
            let lost = found.losses.get(loss).is_some_and(|l| l.time_s <= now_s);
            let p = [
                flat,
                paper
                    .as_ref()
                    .map_or(flat, |curve| curve.loss_probability(cwnd[i - 1])),
                hazard.base(cwnd[i - 1]),
                online
                    .at(cwnd[i - 1], 1)
                    .map_or(flat, |at| at.loss_probability),
            ];
            for (sum, p) in nats.iter_mut().zip(p) {
                *sum -= p * packets;
                if lost {
                    *sum += p.ln();
                }
            }
            counted += usize::from(lost);
        }
        while found.losses.get(loss).is_some_and(|l| l.time_s <= now_s) {
            hazard.lost(found.losses[loss].cwnd_packets, 1e9);
            loss += 1;
        }
        let record = |i: usize| FlowRecord {
            time_s: time[i],
            cwnd_packets: cwnd[i],
            snd_nxt_packets: None,
            srtt_s: None,
            npc: 1,
        };
        feed.observe(&record(i - 1), &mut online);
        hazard.sent(
            cwnd[i - 1],
            cwnd[i - 1] * (time[i] - time[i - 1]) / rtt_s,
            1e9,
        );
        if time[i] >= next_s {
            hazard.forget((-(1.0_f64) / 400.0).exp());
            hazard.smooth();
            next_s = time[i] + 1.0;
            while time[from] < time[i] - 100.0 {
                from += 1;
            }
            // the paper's: refitted each ten seconds
            if (time[i] as u64).is_multiple_of(10)
                && let Ok(part) = Series::new(time[from..i].to_vec(), cwnd[from..i].to_vec())
            {
                let options = FitOptions {
                    rtt_s: Some(rtt_s),
                    ..options
                };
                paper = Some(fit(&part, &options).curve);
            }
        }
    }
    let n = counted.max(1) as f64;
    let more = |k: usize| (nats[k] - nats[0]) / n;
    println!(
        "{name}, {counted}: {:+.2}, {:+.2}, {:+.2}",
        more(1),
        more(2),
        more(3)
    );
}
