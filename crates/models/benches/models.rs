//! Filled in with the forecaster.
fn main() {}
