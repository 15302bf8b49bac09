//! What the other host of a live run says: a client survives any server, and a server any client with its key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathcast_fuzz::write_seeds;
use pathcast_live::hostile::{seeds, take};

fuzz_target!(init: write_seeds(seeds), |content: &[u8]| {
    take(content);
});
