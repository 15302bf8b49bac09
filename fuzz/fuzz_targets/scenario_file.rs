//! Scenario files: read or refused; what is read comes back from `to_toml`, and can be simulated.
//!
//! The input is the scenario, the content of every path file and of every recording that it names,
//! with a byte of 0 in between.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use pathcast_fuzz::{toml_files, write_seeds};
use pathcast_path::Span;
use pathcast_scenario::Scenario;
use pathcast_sim::Simulation;

fuzz_target!(init: write_seeds(seeds), |input: &[u8]| run(input));

/// Flows of a scenario that is simulated, at most: each costs memory before anything happens.
const MOST_FLOWS: usize = 100;

fn run(input: &[u8]) {
    let mut parts = input.splitn(3, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (text, path, recording) = (part(), part(), part());
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let mut load = |name: &str| {
        let content = if name.contains('p') { path } else { recording };
        Ok(content.to_vec())
    };
    let scenario = match Scenario::parse_with(text, "scenario.toml", &mut load) {
        Ok(scenario) => scenario,
        Err(error) => {
            let lines = text.split('\n').count();
            assert!(
                error
                    .place
                    .is_none_or(|(line, column)| line <= lines && column > 0)
            );
            return;
        }
    };
    let toml = scenario.to_toml();
    match Scenario::parse(&toml, "again.toml") {
        Ok(again) => assert_eq!(again, scenario, "{toml}"),
        Err(error) => panic!("{error}\n{toml}"),
    }
    if scenario.flows().take(MOST_FLOWS + 1).count() > MOST_FLOWS {
        return;
    }
    let simulation = Simulation {
        scenario,
        duration: Span::from_millis(300),
        seed: 1,
    };
    // refused schemes and runs without progress are no failures; a look at progress is the end
    if let Ok(outcome) = simulation.run(&mut |_| ControlFlow::Break(())) {
        let data = outcome.data();
        assert!(data.delivered + data.dropped() <= data.enqueued);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut texts = toml_files("scenarios");
    texts.extend(HANDWRITTEN.map(String::from));
    let (path, recording) = ("rate = '9 Mbit/s'\ndelay = '3 ms'\n", "0 100\n0.01 3000\n");
    texts
        .iter()
        .map(|text| [text, path, recording].join("\0").into_bytes())
        .collect()
}

/// Each key and each workload once.
const HANDWRITTEN: [&str; 3] = [
    "name = 'a'\nduration = '1 s'\n[links.'p q']\nfile = 'p'\n[links.b]\ndelay = '1 ms'\n\
     [links.b.reverse]\nloss = 0.1\n[[flows]]\nscheme = 'cubic'\ncount = 3\nevery = '9 ms'\n\
     route = ['b', 'p q']\necn = true\n[[flows]]\nscheme = 'bbr'\ninitial_window = 4\n\
     receive_window = '64 kB'\nslow_start_after_idle = false\nstart = '2 ms'\nstop = '90 ms'\n\
     delay = '10 ms'\ndirection = 'reverse'\nworkload = { kind = 'on-off', on = '9 ms', \
     off = { kind = 'exponential', mean = '9 ms' } }\n",
    "[links.a]\ndelay = '1 ms'\nrate = '5 Mbit/s'\nqueue = '20 kB'\n[[flows]]\nscheme = 'reno'\n\
     workload = { kind = 'transfer', size = { kind = 'pareto', mean = '9 kB', index = 1.2 }, \
     pause = '3 ms', count = 9 }\n[[flows]]\nscheme = 'udp'\nworkload = { kind = \
     'constant-rate', rate = '1 Mbit/s', portion = '200 B', arrivals = 'poisson', count = 50 }\n",
    "[links.a]\ndelay = '1 ms'\nrate = '5 Mbit/s'\nqueue = '20 kB'\n[[flows]]\nscheme = 'udp'\n\
     workload = { kind = 'replay', file = 'r', repeat = true }\n[[flows]]\nscheme = 'vegas'\n\
     workload = { kind = 'replay', writes = [['0 s', '9 B'], ['1 ms', '2 kB']] }\n[[flows]]\n\
     scheme = 'fixed:30'\nworkload = { kind = 'request-response', request = '99 B', response = \
     '20 kB', think = '1 ms' }\n[[flows]]\nscheme = 'udp'\nworkload = { kind = 'on-off', on = \
     '5 ms', off = '7 ms', rate = '1 Mbit/s', portion = '3 kB' }\n",
];
