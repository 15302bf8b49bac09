//! Requests and responses, which share a connection.

use std::ops::ControlFlow;

use pathcast_path::Span;
use pathcast_scenario::Scenario;
use pathcast_trace::{FlowReport, Record};

use super::*;

/// What reaches the sender of responses, and the flow's report, over 20 Mbit/s and 40 ms.
fn exchanges(workload: &str) -> (Vec<Record>, FlowReport) {
    let text = format!(
        "[links.link]\nrate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '4 BDP'\n[[flows]]\nscheme = 'cubic'\n\
         workload = {{ kind = 'request-response', {workload} }}\n"
    );
    let simulation = Simulation {
        scenario: Scenario::parse(&text, "test.toml").unwrap(),
        duration: Span::from_secs(60.0),
        seed: 1,
    };
    let mut records = Vec::new();
    let outcome = simulation
        .run_recorded(&mut |_| ControlFlow::Continue(()), &mut records)
        .unwrap();
    (records, outcome.flows()[0].clone())
}

#[test]
fn the_next_request_acknowledges_a_response() {
    // one packet each way; only the first acknowledgment of a response is sent by itself
    let (records, report) = exchanges("request = '400 B', response = '1 kB', count = 50");
    assert_eq!(report.messages.unwrap().delivered, 50);
    assert_eq!(records.len(), 51);
    // two acknowledgments for the four packets of each response, and a request
    let (records, _) = exchanges("request = '400 B', response = '5 kB', count = 50");
    assert_eq!(records.len(), 150);
}

#[test]
fn a_response_is_acknowledged_alone_if_no_request_follows_soon() {
    // the delay of an acknowledgment, 40 ms, is over before the next request; the sender measures it
    let (records, report) = exchanges("response = '1 kB', think = '60 ms', count = 50");
    assert_eq!(report.retransmits, 0);
    assert_eq!(records.len(), 99); // the run ends with the last response
    let (waiting, _) = exchanges("response = '1 kB', think = '30 ms', count = 50");
    let srtt_s = waiting.last().unwrap().srtt_s.unwrap();
    assert!((0.065..0.072).contains(&srtt_s), "{srtt_s}");
}

#[test]
fn losses_in_both_directions_are_repaired() {
    let lossy = |loss: &str| {
        let text = format!(
            "[links.link]\nrate = '20 Mbit/s'\ndelay = '20 ms'\nloss = {loss}\n[links.link.reverse]\nloss = {loss}\n\
             [[flows]]\nscheme = 'cubic'\nhandshake = true\n\
             workload = {{ kind = 'request-response', request = '30 kB', response = '30 kB', count = 40 }}\n"
        );
        let simulation = Simulation {
            scenario: Scenario::parse(&text, "test.toml").unwrap(),
            duration: Span::from_secs(600.0),
            seed: 3,
        };
        let outcome = simulation.run(&mut |_| ControlFlow::Continue(())).unwrap();
        outcome.flows()[0].clone()
    };
    let (clean, dirty) = (lossy("0"), lossy("0.03"));
    for flow in [&clean, &dirty] {
        assert_eq!(flow.messages.as_ref().unwrap().delivered, 40);
        assert_eq!(flow.delivered_bytes, 40 * 30_000);
    }
    assert_eq!(clean.retransmits, 0);
    assert!(dirty.retransmits > 10);
    assert!(dirty.completed_s.unwrap() > 1.2 * clean.completed_s.unwrap());
}
