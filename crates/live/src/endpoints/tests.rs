//! Tests of what peers may make a host keep.

use std::net::{TcpListener, TcpStream};

use pathcast_scenario::Heading;

use super::*;
use crate::plan::{CLIENT, over_real_path, scenario_of, tasks};

/// What becomes of `count` flows that write 24 bytes some five million times a second, to readers that read
/// nothing, when they begin `late_ns` late: the most that waits, and each flow's end.
fn flooded(count: usize, late_ns: u64) -> (usize, Vec<Option<i32>>) {
    let workload = "{ kind = 'constant-rate', rate = '1 Gbit/s', portion = '24 B' }";
    let schemes = vec!["cubic".to_string(); count];
    let scenario = scenario_of(&schemes, Heading::Forward, Some(workload)).unwrap();
    let tasks = tasks(&over_real_path(&scenario), 1, CLIENT);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut readers, mut sockets) = (Vec::new(), Vec::new());
    for _ in &tasks {
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        sockets.push(OwnedFd::from(socket));
        readers.push(listener.accept().unwrap());
    }
    let begin_ns = monotonic_ns() - late_ns;
    let mut endpoints = Endpoints::new(&tasks, sockets, 1, begin_ns).unwrap();
    let now = Time::from_nanos(late_ns);
    let mut most = 0;
    while let Some((_, flow)) = endpoints.wakes.pop(now) {
        endpoints.step(flow as usize, |endpoints, flow| {
            endpoints.write_due(flow, now)
        });
        let waiting: usize = endpoints.flows.iter().map(Endpoint::waiting).sum();
        assert_eq!(waiting, endpoints.waiting);
        most = most.max(waiting);
    }
    let broken = endpoints.flows.iter().map(|flow| flow.outcome.broken);
    (most, broken.collect())
}

#[test]
fn a_flow_that_writes_more_than_its_path_carries_is_ended() {
    let (most, broken) = flooded(3, 60_000_000);
    assert!(most <= MOST_WAITING, "{most}");
    assert_eq!(broken, [Some(Errno::NOBUFS.raw_os_error()); 3]);
}

#[test]
fn all_flows_of_a_run_together_keep_no_more_than_they_may() {
    // 40,000 messages each
    let (most, broken) = flooded(10, 8_000_000);
    assert!(most <= MOST_WAITING_IN_ALL, "{most}");
    let ended = broken.iter().filter(|broken| broken.is_some()).count();
    assert!((1..10).contains(&ended), "{broken:?}");
}
