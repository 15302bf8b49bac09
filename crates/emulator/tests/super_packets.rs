//! What super-packets may change, and what not. Where these tests can run is said in `kernel.rs`.

mod common;

use common::{alone, options, run, valid_run};
use pathcast_emulator::{DeviceKind, Ip, Options};
use pathcast_path::Span;
use pathcast_scenario::Scenario;
use pathcast_trace::{RunReport, Trace};

fn goodput_bps(report: &RunReport) -> f64 {
    report.flows.iter().map(|flow| flow.goodput_bps).sum()
}

fn has_super_packets(trace: &Trace) -> bool {
    trace.metadata.environment["super_packets"] == "yes"
}

#[test]
fn a_flow_is_the_same_with_super_packets_and_without() {
    let Some(_alone) = alone() else { return };
    let path = "rate = '200 Mbit/s'\ndelay = '10 ms'\nqueue = '1 BDP'\n";
    let with = |super_packets: bool| {
        let options = Options {
            device: Some(DeviceKind::Tun),
            super_packets: Some(super_packets),
            ..options(path, &["cubic"], 2.5)
        };
        let (report, trace) = valid_run(&options)?;
        assert_eq!(has_super_packets(&trace), super_packets);
        Some(report)
    };
    let (Some(plain), Some(supers)) = (with(false), with(true)) else {
        return;
    };
    let ratio = goodput_bps(&supers) / goodput_bps(&plain);
    assert!((0.98..1.02).contains(&ratio), "{ratio}");
    let delays_ms = [&plain, &supers].map(|report| report.one_way_delay_ms.p95);
    assert!((delays_ms[0] - delays_ms[1]).abs() < 1.0, "{delays_ms:?}");
    // slow start overshoots once, and each drop is repaired
    let retransmits = [&plain, &supers].map(|report| report.flows[0].retransmits);
    let [few, many] = [
        retransmits[0].min(retransmits[1]),
        retransmits[0].max(retransmits[1]),
    ];
    assert!(few > 0 && many <= 2 * few, "{retransmits:?}");
}

#[test]
fn marks_datagrams_and_quic_pass_devices_with_super_packets() {
    let Some(_alone) = alone() else { return };
    let text = "[links.core]\nrate = '600 Mbit/s'\ndelay = '10 ms'\n\
         queue = { kind = 'codel', ecn = true }\n\
         [[flows]]\nscheme = 'cubic'\necn = true\n\
         [[flows]]\nscheme = 'udp'\nworkload = { kind = 'constant-rate', rate = '10 Mbit/s', \
         portion = '1250 B', count = 500 }\n\
         [[flows]]\nscheme = 'quic-cubic'\nworkload = { kind = 'transfer', size = '1 MB' }\n";
    for ip in [Ip::V4, Ip::V6] {
        let scenario = Scenario::parse(text, "test.toml").unwrap();
        let options = Options {
            ip,
            device: Some(DeviceKind::Tun),
            ..Options::of_scenario(scenario, Span::from_secs(2.0), 1)
        };
        let Some((report, trace)) = valid_run(&options) else {
            return;
        };
        assert!(has_super_packets(&trace), "the link is fast");
        let [bulk, probes, transfer] = &report.flows[..] else {
            panic!("{report:?}")
        };
        assert_eq!(bulk.retransmits, 0, "packets are marked instead of dropped");
        assert!(bulk.goodput_bps > 200e6, "{report:?}");
        let probes = probes.messages.unwrap();
        assert_eq!((probes.written, probes.delivered), (500, 500));
        assert_eq!(transfer.delivered_bytes, 1_000_000);
    }
}

#[test]
fn more_than_two_gigabits_and_a_half_pass_in_a_valid_run() {
    let Some(_alone) = alone() else { return };
    let path = "rate = '3 Gbit/s'\ndelay = '2 ms'\nqueue = '2 BDP'\n";
    let options = Options {
        device: Some(DeviceKind::Tun),
        ..options(path, &["cubic"], 1.5)
    };
    let mut most_bps: f64 = 0.0;
    for _ in 0..3 {
        let (report, trace) = run(&options);
        assert!(has_super_packets(&trace), "the link is fast");
        if !report.valid {
            println!("not valid: {:?}", report.invalid_because);
            continue;
        }
        most_bps = most_bps.max(goodput_bps(&report));
        if most_bps > 2.5e9 {
            return;
        }
    }
    println!(
        "skipped: the most of three valid runs was {most_bps:.3e} bit/s, this machine is too slow"
    );
}
