//! What becomes of the data of each table of flows.

use std::ops::ControlFlow;

use pathcast_path::Span;
use pathcast_scenario::Scenario;
use pathcast_trace::RunReport;

use super::*;

fn report(tables: &str) -> RunReport {
    let text = format!(
        "[links.near]\nrate = '20 Mbit/s'\ndelay = '10 ms'\nqueue = '1 MB'\n\
         [links.far]\nrate = '10 Mbit/s'\ndelay = '50 ms'\nqueue = '1 MB'\nloss = 0.05\n{tables}"
    );
    let simulation = Simulation {
        scenario: Scenario::parse(&text, "test.toml").unwrap(),
        duration: Span::from_secs(20.0),
        seed: 1,
    };
    let outcome = simulation.run(&mut |_| ControlFlow::Continue(())).unwrap();
    outcome.report(0.0, 0.0)
}

const NEAR: &str = "[[flows]]\nscheme = 'reno'\ncount = 2\nroute = ['near']\n";
const FAR: &str = "[[flows]]\nscheme = 'udp'\nroute = ['far']\nstart = '0 s'\n\
                   workload = { kind = 'constant-rate', rate = '2 Mbit/s', portion = '1200 B' }\n";

#[test]
fn each_table_has_the_delay_and_the_loss_of_its_own_packets() {
    let run = report(&format!("{NEAR}{FAR}"));
    let [near, far] = &run.groups[..] else {
        panic!("{:?}", run.groups);
    };
    assert_eq!((near.flows, far.flows), (2, 1));
    let delivered = near.packets_delivered + far.packets_delivered;
    assert_eq!(delivered, run.packets_delivered);
    // two megabits a second for 20 s, of which one packet in twenty is lost
    let sent = far.packets_delivered as f64 / (1.0 - far.loss_rate);
    assert!((sent - 20.0 * 2e6 / 9600.0).abs() < 20.0, "{sent}");
    assert!((far.loss_rate - 0.05).abs() < 0.01, "{}", far.loss_rate);
    assert!(near.loss_rate < run.loss_rate && run.loss_rate < far.loss_rate);
    // the far link never has a queue, and a packet takes 1 ms
    assert!((far.one_way_delay_ms.p95 - 51.0).abs() < 0.2);
    assert!(near.one_way_delay_ms.p95 > 100.0);
    // the tables go to their flows
    assert_eq!(run.group_of(0), *near);
    assert_eq!(run.group_of(1), *near);
    assert_eq!(run.group_of(2), *far);
}

#[test]
fn one_table_is_the_whole_run() {
    let run = report(NEAR);
    assert!(run.groups.is_empty());
    let whole = run.group_of(1);
    assert_eq!(whole.packets_delivered, run.packets_delivered);
    assert_eq!(whole.loss_rate, run.loss_rate);
    assert_eq!(whole.one_way_delay_ms, run.one_way_delay_ms);
}

#[test]
fn tables_over_quic_and_of_requests_are_counted_too() {
    let quic = "[[flows]]\nscheme = 'quic-cubic'\nroute = ['near']\n";
    let asking = "[[flows]]\nscheme = 'cubic'\nroute = ['far']\n\
                  workload = { kind = 'request-response', response = '20 kB', count = 20 }\n";
    let run = report(&format!("{quic}{asking}"));
    let [quic, asking] = &run.groups[..] else {
        panic!("{:?}", run.groups);
    };
    assert!(quic.packets_delivered > 10_000);
    assert!(quic.one_way_delay_ms.mean > 10.0);
    // 14 packets for each response, and those of them that are sent again
    assert!((280..400).contains(&asking.packets_delivered));
    assert!(asking.loss_rate > 0.02 && asking.loss_rate < 0.1);
}
