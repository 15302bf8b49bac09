//! Measures a fleet of a million prefixes: look-ups, updates by reports, memory, and the configuration for agents.
//!
//! usage: cargo run --release --package pathcast-control --example prefixes [PREFIXES]
//!
//! Prints JSON. The memory is that of the whole process (Linux). `busy_max` is the most processor time of an update, and
//! `busy_max_of_nothing` that of a turn as long that does nothing.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use pathcast_control::{
    Applied, Completions, Delta, Fleet, Model, Prefix, PrefixReport, Report, Settings, Tracked,
};

const MODEL: &str = r#"{"format":1,"templates":[{"name":"lossy","knobs":{"congestion_control":"bbr"}}],
    "features":["loss"],"tree":{"feature":"loss","threshold":0.01,"below":{"template":"default"},
    "otherwise":{"template":"lossy"}}}"#;
/// Prefixes of one report.
const EACH: usize = 1000;

fn memory_mb() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm
        .split(' ')
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(f64::NAN);
    pages * 4096.0 / 1e6
}

/// Processor time of this thread, seconds.
fn busy_s() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + 1e-9 * now.tv_nsec as f64
}

/// The most processor time, in us, that a thread seems to take for a turn of `turn_us` in which it only looks at the clock:
/// what a virtual machine's host takes away counts as its own.
fn idle_turns_max_us(turns: usize, turn_us: f64) -> f64 {
    let turn = |_| {
        let (begin, busy) = (Instant::now(), busy_s());
        while begin.elapsed().as_secs_f64() * 1e6 < turn_us {
            std::hint::spin_loop();
        }
        (busy_s() - busy) * 1e6
    };
    (0..turns).map(turn).fold(0.0, f64::max)
}

fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 16
}

/// Distinct /24s, spread over the whole of IPv4.
fn prefix(number: usize) -> Prefix {
    // an odd factor permutes the numbers of 24 bits
    let bits = (u32::try_from(number).unwrap().wrapping_mul(0x9e_3779) & 0xff_ffff) << 8;
    format!("{}/24", Ipv4Addr::from(bits)).parse().unwrap()
}

fn report(numbers: &[usize], sequence: u64, fleet: &Fleet) -> Report {
    let of = |number: &usize| {
        let prefix = prefix(*number);
        let template = fleet.map().get(&prefix).cloned().unwrap_or_default();
        let loss = if number.is_multiple_of(2) {
            0.05
        } else {
            0.001
        };
        PrefixReport {
            prefix,
            flows: 30,
            rtt_ms: Some(80.0),
            loss: Some(loss),
            bandwidth_mbps: Some(5.0),
            jitter_ms: Some(2.0),
            completions: vec![Completions::of(template, 0, &[900.0, 1000.0, 1200.0]).unwrap()],
        }
    };
    Report {
        format: 1,
        agent: "edge".into(),
        boot: "0011223344556677".into(),
        sequence,
        sent_at_ms: sequence,
        applied: Applied {
            version: 0,
            ok: true,
            errors: vec![],
        },
        prefixes: numbers.iter().map(of).collect(),
    }
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q) as usize]
}

/// What is sent if all prefixes are placed, as a whole and for a hundred changes; and what that takes.
fn changes(fleet: &Fleet, count: usize) -> String {
    let mut configuration = fleet.configuration();
    let name = |text: &str| text.parse::<pathcast_control::Name>().unwrap();
    configuration.prefixes = (0..count)
        .map(|number| (prefix(number), name("lossy")))
        .collect();
    let base = configuration.version;
    let templates = configuration.templates.clone();
    let agent = Tracked::of(configuration);
    let mut manager = agent.clone();
    let changed: Vec<Prefix> = (0..100)
        .map(|number| prefix(number * count / 100))
        .collect();
    let begin = Instant::now();
    for one in &changed {
        manager.set(*one, Some(name("default")));
    }
    manager.go_on(base + 1, 1, &templates);
    let text = manager.delta(base, changed.iter().copied()).to_json();
    let made_us = begin.elapsed().as_secs_f64() * 1e6;
    let begin = Instant::now();
    let after = agent.changed_by(Delta::read(&text).unwrap()).unwrap();
    let applied_ms = begin.elapsed().as_secs_f64() * 1e3;
    assert_eq!(after.configuration(), manager.configuration());
    format!(
        "\"hundred_changes\":{{\"whole_bytes\":{},\"bytes\":{},\"make_us\":{made_us:.0},\"apply_ms\":{applied_ms:.0}}}",
        manager.configuration().to_json().len(),
        text.len(),
    )
}

fn main() {
    let count: usize = std::env::args().nth(1).map_or(1_000_000, |text| {
        text.parse().expect("a number of prefixes")
    });
    let before_mb = memory_mb();
    let settings = Settings {
        prefixes: count,
        shadow_s: 0.0,
        hold_out: 0.0,
        ..Settings::default()
    };
    let mut fleet = Fleet::new(settings);
    fleet
        .set_model(Model::read(MODEL.as_bytes()).unwrap(), 0)
        .unwrap();
    let numbers: Vec<usize> = (0..count).collect();
    let begin = Instant::now();
    let mut sequence = 0;
    for round in 0..7_u64 {
        for part in numbers.chunks(EACH) {
            sequence += 1;
            let report = report(part, sequence, &fleet);
            fleet.report(&report, round * 1000);
        }
        // what is stored is forgotten, as the manager does
        let _ = fleet.drain_changed(count);
        black_box(fleet.step(round * 1000));
        if round == 5 {
            fleet
                .approve(1, "the bench", round * 1000)
                .expect("the trial runs");
            black_box(fleet.step(round * 1000));
        }
    }
    let filled_s = begin.elapsed().as_secs_f64();
    let filled_mb = memory_mb() - before_mb;

    let mut state = 7;
    let addresses: Vec<IpAddr> = (0..1_000_000)
        .map(|_| {
            let prefix = prefix(usize::try_from(random(&mut state)).unwrap() % count);
            let host = (random(&mut state) & 0xff) as u32;
            match prefix.net().network() {
                IpAddr::V4(v4) => IpAddr::from(Ipv4Addr::from(v4.to_bits() | host)),
                v6 @ IpAddr::V6(_) => v6,
            }
        })
        .collect();
    // in batches, whose median other programs hardly disturb
    let mut lookups_ns: Vec<f64> = (addresses.chunks(EACH))
        .map(|batch| {
            let begin = Instant::now();
            let found = batch
                .iter()
                .filter(|address| fleet.longest(**address).is_some())
                .count();
            assert_eq!(found, batch.len());
            begin.elapsed().as_secs_f64() * 1e9 / batch.len() as f64
        })
        .collect();
    lookups_ns.sort_by(f64::total_cmp);

    // by the clock, and by the processor's time of this thread: other programs lengthen the first alone
    let (mut updates_us, mut busy_us): (Vec<f64>, Vec<f64>) = (0..100_000)
        .map(|_| {
            let number = usize::try_from(random(&mut state)).unwrap() % count;
            sequence += 1;
            let report = report(&[number], sequence, &fleet);
            let (begin, busy) = (Instant::now(), busy_s());
            fleet.report(&report, 8000);
            let busy_us = (busy_s() - busy) * 1e6;
            (begin.elapsed().as_secs_f64() * 1e6, busy_us)
        })
        .unzip();
    updates_us.sort_by(f64::total_cmp);
    busy_us.sort_by(f64::total_cmp);
    let idle_us = idle_turns_max_us(updates_us.len(), quantile(&updates_us, 0.5));
    // what the manager sends from
    let filled_now_mb = memory_mb();
    let begin = Instant::now();
    let configuration = fleet.configuration();
    let copied_ms = begin.elapsed().as_secs_f64() * 1e3;
    let (copy_mb, placed) = (memory_mb() - filled_now_mb, configuration.prefixes.len());
    let begin = Instant::now();
    let bytes = configuration.to_json();
    let written_ms = begin.elapsed().as_secs_f64() * 1e3;
    let megabytes = bytes.len() as f64 / 1e6;
    drop((configuration, bytes));
    let sent = changes(&fleet, count);
    println!(
        "{{\"prefixes\":{},\"placed\":{},\"reports_per_s\":{:.0},\"memory_mb\":{:.0},\"lookup_ns\":{{\"p50\":{:.0},\"p99\":{:.0}}},\"update_us\":{{\"p50\":{:.2},\
         \"p99\":{:.2},\"max\":{:.0},\"busy_max\":{:.0},\"busy_max_of_nothing\":{idle_us:.0}}},\"configuration\":{{\"mb\":{:.1},\"copy_ms\":{:.0},\"write_ms\":{:.0}}},\"copy_mb\":{copy_mb:.0},{sent}}}",
        fleet.len(),
        placed,
        7.0 * count as f64 / filled_s,
        filled_mb,
        quantile(&lookups_ns, 0.5),
        quantile(&lookups_ns, 0.99),
        quantile(&updates_us, 0.5),
        quantile(&updates_us, 0.99),
        quantile(&updates_us, 1.0),
        quantile(&busy_us, 1.0),
        megabytes,
        copied_ms,
        written_ms,
    );
}
