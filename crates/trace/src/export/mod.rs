//! Traces in the formats of other tools.

mod csv;
mod delivery_trace;
mod mm_link_log;

pub use csv::{write_csv, write_perf_csv};
pub use delivery_trace::write_delivery_trace;
pub use mm_link_log::write_mm_link_log;
