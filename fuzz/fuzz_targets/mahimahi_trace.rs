//! Mahimahi traces: read or refused; what is read comes back from its text, and makes a link.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathcast_fuzz::write_seeds;
use pathcast_path::link::{MahimahiTrace, OpportunityLink};
use pathcast_path::{Span, Time};

fuzz_target!(init: write_seeds(seeds), |content: &[u8]| run(content));

fn run(content: &[u8]) {
    let Ok(trace) = MahimahiTrace::parse(content) else {
        return;
    };
    let moments = trace.opportunities_ms();
    assert!(moments.is_sorted() && trace.period_ms() > 0);
    assert!(trace.mean_rate().as_bps() > 0.0);
    let text: Vec<String> = moments.iter().map(ToString::to_string).collect();
    let again = MahimahiTrace::parse(text.join("\n").as_bytes());
    assert_eq!(again.as_ref(), Ok(&trace));

    let mut link = OpportunityLink::trace(trace.clone());
    let mut last = Time::ZERO;
    for _ in 0..100 {
        assert!(link.next() >= last, "time goes on");
        last = link.next();
        link.advance();
    }
    let period = Span::from_millis(u64::from(trace.period_ms()));
    for turn in 0..100u64 {
        let now = last + period.mul_div(turn * turn, 7);
        link.skip_past(now);
        let next = link.next();
        assert!(
            next > now && next.since(now) <= period,
            "{next:?} after {now:?}"
        );
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 6] = [
        b"1\n",
        b"0\n0\n5\r\n10",
        b"3\n3\n3\n4\n17\n18\n60000\n",
        b"1\n3\n2\n",
        b"+1\n-2\n\n",
        b"4294967295\n4294967296\n",
    ];
    texts.map(<[u8]>::to_vec).to_vec()
}
