//! How long finite transfers take. Numbers in, plain structs out: no I/O, no clock, no threads, no
//! randomness.
//!
//! | to do | call | gives |
//! |---|---|---|
//! | the time of a transfer | [`latency::latency`], [`latency::LatencyForecaster`], [`latency::evaluate_latency`] | [`latency::Latency`] `{bytes, mean_s, quantiles_s, no_loss_probability}` |
//! | the rate of a flow that goes on | [`latency::long_run_packets_per_s`] | packets/s |
//! | larger transfers from one small one | [`short_flow::estimate`] | [`short_flow::Estimate`] |
//!
//! All outputs derive `serde::Serialize` with the keys above: `docs/explanation/transfer-times.md`,
//! `docs/explanation/short-flows.md`.

pub mod latency;
pub mod short_flow;
