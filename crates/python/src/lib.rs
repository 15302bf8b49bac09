//! The Rust crates as the Python module `pathcast._internal`: convert, release the GIL, map errors.
//!
//! Summaries cross as JSON text, which Python turns into its dataclasses; columns cross as NumPy
//! arrays.

// Python hands over owned values
#![allow(clippy::needless_pass_by_value)]

mod batch;
mod clusters;
mod convert;
mod errors;
mod estimators;
mod follow;
mod latency;
mod limits;
mod live;
mod min_plus;
mod models;
mod namespaces;
mod output;
mod pages;
mod path;
mod probing;
mod rates;
mod runs;
mod service;
mod shell;
mod short_flow;
mod specs;
mod trace;
mod watch;

use pyo3::prelude::*;

#[pymodule]
mod _internal {
    /// The version of the package.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use crate::batch::{ArrowTable, check_simulations, simulate_many};
    #[pymodule_export]
    use crate::clusters::LossClusters;
    #[pymodule_export]
    use crate::convert::{
        TraceFile, convert_packets, convert_pantheon_perf, export_csv, import_trace,
    };
    #[pymodule_export]
    use crate::errors::{
        EmulatorError, LiveError, ModelError, PathFileError, ProbeError, SchemeError, ServiceError,
        SimulationError, TraceError,
    };
    #[pymodule_export]
    use crate::estimators::{Estimator, model_names};
    #[pymodule_export]
    use crate::follow::follow;
    #[pymodule_export]
    use crate::latency::{evaluate_latency, latency, latency_on_trace};
    #[pymodule_export]
    use crate::limits::limits;
    #[pymodule_export]
    use crate::live::{live_key, live_run, live_serve};
    #[pymodule_export]
    use crate::min_plus::{MinPlusArrivals, MinPlusCurve};
    #[pymodule_export]
    use crate::models::{
        Forecaster, coverage, error_ratio, error_summary, evaluate, fit, skills, window_law,
    };
    #[pymodule_export]
    use crate::namespaces::{enter_user_namespace, may_make_namespaces};
    #[pymodule_export]
    use crate::output::{check_output, write_file};
    #[pymodule_export]
    use crate::pages::{PageSpec, load_pages, model_pages};
    #[pymodule_export]
    use crate::path::{from_mahimahi, from_netem, from_rattan, path_as, traces_to_files};
    #[pymodule_export]
    use crate::probing::{WindowLoop, simulate_probe};
    #[pymodule_export]
    use crate::rates::{RateForecaster, choose_bitrate};
    #[pymodule_export]
    use crate::runs::{capabilities, emulate, simulate, simulate_sender, simulator_schemes};
    #[pymodule_export]
    use crate::service::serve_decisions;
    #[pymodule_export]
    use crate::shell::{KernelScheme, run_shell};
    #[pymodule_export]
    use crate::short_flow::estimate_short_flow;
    #[pymodule_export]
    use crate::specs::{PathSpec, ScenarioSpec, is_scenario};
    #[pymodule_export]
    use crate::trace::Trace;
    #[pymodule_export]
    use crate::watch::Watch;
}
