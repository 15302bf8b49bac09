//! All models on a folder of traces: `cargo run --release -p pathcast-forecast --example econ_table -- FOLDER [fair|paper]`.
//!
//! FOLDER holds `NAME.cwnd.csv.gz` (time_s, cwnd_packets), as the ECON authors' traces do. With
//! `NAME.epochs.csv` and `NAME.loss_curve.csv` beside it, epochs and curve are compared too.

#[path = "../tests/common/mod.rs"]
mod common;

use pathcast_analysis::{FitOptions, fit};
use pathcast_forecast::{EvaluateOptions, Protocol, evaluate};
use pathcast_window_law::Cc;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = common::given_or_folder(arguments.next());
    let protocol = match arguments.next().as_deref() {
        Some("paper") => Protocol::Paper,
        _ => Protocol::Fair,
    };
    let folder = folder.as_path();
    for trace in common::traces(folder) {
        let series = common::series(folder, &trace);
        let cc = if trace.starts_with("reno") {
            Cc::Reno
        } else {
            Cc::Cubic
        };
        let fit = fit(
            &series,
            &FitOptions {
                cc: Some(cc),
                ..FitOptions::default()
            },
        );
        println!(
            "{trace}: {:.4} s, {} epochs, {} losses",
            fit.rtt_s,
            fit.epochs.len(),
            fit.losses.len()
        );
        if let Some(agreement) = common::agreement(folder, &trace, &fit) {
            println!("{agreement}");
        }
        let options = EvaluateOptions {
            cc: Some(cc),
            protocol,
            ..EvaluateOptions::default()
        };
        match evaluate(&series, &options) {
            Ok(evaluation) => {
                for horizon in &evaluation.horizons {
                    print!(
                        "  {:>4} s {:>5} windows",
                        horizon.horizon_s, horizon.windows
                    );
                    for (model, error) in horizon.median_error_pct.iter() {
                        print!("  {} {:.2}", model.name(), error.unwrap_or(f64::NAN));
                    }
                    println!("  coverage90 {:.3}", horizon.coverage90.unwrap_or(f64::NAN));
                }
            }
            Err(error) => println!("  {error}"),
        }
    }
}
