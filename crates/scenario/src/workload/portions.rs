//! Writes of one size at a rate.

use pathcast_path::reader::{Field, RATE, Read, SIZE, Table};
use pathcast_path::{Bandwidth, Size};

use crate::transport::DEFAULT_MSS_BYTES;

/// The key `portion` of a table.
pub(super) fn read_portion(table: Table<'_, '_>) -> Read<Size> {
    let full = Size::from_bytes(u64::from(DEFAULT_MSS_BYTES)).expect("more than none");
    table.or("portion", full, |field| field.quantity(SIZE))
}

/// A rate at which portions have distinct times: at most one each 10 ns.
pub(super) fn read_rate(field: Field<'_, '_>, portion: Size) -> Read<Bandwidth> {
    let rate: Bandwidth = field.quantity(RATE)?;
    if interval_s(rate, portion) < 1e-8 {
        return field.wrong(format_args!(
            "got {rate} in portions of {portion}: too many a second"
        ));
    }
    Ok(rate)
}

/// From one portion to the next.
pub(super) fn interval_s(rate: Bandwidth, portion: Size) -> f64 {
    portion.as_bytes() as f64 * 8.0 / rate.as_bps()
}
