//! `pathcast-serve`.

fn main() {}
