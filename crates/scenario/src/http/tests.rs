use std::sync::Arc;

use pathcast_page::{Page, Protocol};
use pathcast_path::{Span, Time};

use super::*;
use crate::application::{Message, Side};

const ONE_WAY: Span = Span::from_millis(10);

/// Carries all messages in 10 ms, and asks servers for a record whenever one has arrived: times of the load event and
/// of the ends of all resources, in ms, and the number of connections.
fn load(page: &str, http: Http) -> (u64, Vec<u64>, usize) {
    let page = Arc::new(Page::parse(page, "page.toml").unwrap());
    let mut load = PageLoad::new(&page, http, Time::ZERO);
    let mut under_way: Vec<(Time, usize, Message)> = Vec::new();
    let mut now = Time::ZERO;
    load.advance(now);
    let mut opens = Vec::new();
    for _ in 0..100_000 {
        while let Some(connection) = load.take_connecting() {
            opens.push((now + ONE_WAY + ONE_WAY, connection));
        }
        while let Some((connection, message)) = load.take_written() {
            under_way.push((now + ONE_WAY, connection, message));
        }
        for connection in 0..load.connections() {
            let busy = under_way
                .iter()
                .any(|(_, one, message)| *one == connection && message.from == Side::Source);
            if !busy && let Some(message) = load.take_record(now, connection) {
                under_way.push((now + ONE_WAY, connection, message));
            }
        }
        let next = under_way
            .iter()
            .map(|(at, ..)| *at)
            .chain(load.next())
            .chain(opens.iter().map(|(at, _)| *at))
            .min();
        let Some(next) = next else { break };
        now = next;
        load.advance(now);
        if let Some(due) = opens.iter().position(|(at, _)| *at <= now) {
            let (_, connection) = opens.remove(due);
            load.on_connected(now, connection);
        }
        let due = under_way.iter().position(|(at, ..)| *at <= now);
        if let Some(due) = due {
            let (_, connection, message) = under_way.remove(due);
            load.on_delivered(now, connection, &message);
        }
    }
    assert!(load.is_done());
    let ms = |at: Option<Time>| at.unwrap().as_nanos() / 1_000_000;
    let ends = load
        .times()
        .iter()
        .map(|times| ms(times.finished))
        .collect();
    (ms(load.loaded()), ends, load.opened())
}

fn http(protocol: Protocol) -> Http {
    Http::new(protocol)
}

/// A document and `count` images of `bytes` that it names at its beginning.
fn images(count: usize, bytes: u32) -> String {
    let mut page = "[[resources]]\nurl = 'https://a.org/'\nsize = '1 kB'\n".to_string();
    for number in 0..count {
        page += &format!(
            "[[resources]]\nurl = 'https://a.org/{number}'\ntype = 'image'\nsize = '{bytes} B'\n\
             after = {{ of = 'https://a.org/', at = 0 }}\n"
        );
    }
    page
}

#[test]
fn a_secured_request_takes_two_round_trips() {
    let page = images(0, 1);
    // hello, certificate, request, response: 10 ms each
    assert_eq!(load(&page, http(Protocol::Http2)), (40, vec![40], 1));
    let old = Http {
        tls: Tls::V1_2,
        ..http(Protocol::Http1)
    };
    assert_eq!(load(&page, old).0, 60);
    let plain = Http {
        tls: Tls::None,
        dns: Span::from_millis(7),
        ..http(Protocol::Http1)
    };
    assert_eq!(load(&page, plain).0, 27);
}

#[test]
fn http_1_has_six_connections_with_one_request_each() {
    // 13 images: one on the open connection in each round trip of 20 ms; the five others open in 20 ms
    let (loaded, ends, opened) = load(&images(13, 1000), http(Protocol::Http1));
    assert_eq!(opened, 6);
    let mut rounds: Vec<u64> = ends[1..].to_vec();
    rounds.sort_unstable();
    assert_eq!(
        rounds,
        [60, 80, 80, 80, 80, 80, 80, 100, 100, 100, 100, 100, 100]
    );
    assert_eq!(loaded, 100);
}

#[test]
fn http_2_asks_for_all_at_once_over_one_connection() {
    let (_, ends, opened) = load(&images(3, 1000), http(Protocol::Http2));
    // this transport carries one record after another: 10 ms each
    assert_eq!((ends, opened), (vec![40, 60, 70, 80], 1));
}

#[test]
fn a_browser_takes_its_own_time() {
    let with = |protocol, browser| Http {
        browser,
        ..http(protocol)
    };
    let page = images(13, 1000);
    // what the document names can begin later, and nothing else changes
    let navigation = Browser {
        navigation: Span::from_millis(7),
        ..Browser::NONE
    };
    assert_eq!(load(&page, with(Protocol::Http1, navigation)).0, 100 + 7);
    // five responses come together at 81 ms and are read one after another, and their connections go on one after another
    let network = Browser {
        network_thread: Span::from_millis(1),
        ..Browser::NONE
    };
    let (loaded, ends, _) = load(&page, with(Protocol::Http1, network));
    assert_eq!(ends[0], 40);
    assert_eq!(ends[8..], [102, 103, 104, 105, 106, 107]);
    assert_eq!(loaded, 108);
    // the main thread delays what the document names once, and ends last
    let main = Browser {
        main_thread: Span::from_millis(30),
        ..Browser::NONE
    };
    let (loaded, ends, _) = load(&page, with(Protocol::Http2, main));
    let (_, without, _) = load(&page, http(Protocol::Http2));
    assert_eq!(
        (ends[0], ends[1], ends[13]),
        (40, without[1] + 30, without[13] + 30)
    );
    assert_eq!(loaded, 90 + 13 * 30);
    // a task waits its turn behind responses
    let page =
        images(2, 1000) + "[[tasks]]\nid = 'work'\ntime = '5 ms'\nafter = 'https://a.org/0'\n";
    let (loaded, ends, _) = load(&page, with(Protocol::Http2, main));
    assert_eq!((ends[1], ends[2]), (90, 100));
    assert_eq!(loaded, 90 + 30 + 30 + 5);
}

#[test]
fn one_connection_serves_origins_with_one_certificate() {
    let page = images(2, 1000).replace("a.org/1", "b.org/1");
    let (loaded, _, opened) = load(&page, http(Protocol::Http2));
    assert_eq!((loaded, opened), (80, 2)); // the document's 40 ms, and another handshake
    let page = format!("coalesced = [['https://a.org', 'https://b.org/']]\n{page}");
    for protocol in [Protocol::Http2, Protocol::Http3] {
        let (took, _, opened) = load(&page, http(protocol));
        assert_eq!((took, opened), (70, 1), "{protocol}");
    }
    assert_eq!(load(&page, http(Protocol::Http1)).2, 2);
}

#[test]
fn http_3_opens_in_one_round_trip_and_sends_packets_of_each_response_in_turn() {
    let (_, ends, opened) = load(&images(3, 1000), http(Protocol::Http3));
    // this transport has no handshake of TCP, so that TLS takes as long
    assert_eq!((ends, opened), (vec![40, 60, 70, 80], 1));
    // two of 1400 bytes and one of the rest for each image; the first image begins alone
    let (_, ends, _) = load(&images(2, 3000), http(Protocol::Http3));
    assert_eq!(ends[2] - ends[1], 20);
    let urgent = Http {
        streams: StreamOrder::Priority,
        ..http(Protocol::Http3)
    };
    let (_, ends, _) = load(&images(2, 3000), urgent);
    assert_eq!(ends[2] - ends[1], 30);
}

#[test]
fn a_request_and_its_response_are_one_exchange() {
    let page = Arc::new(Page::parse(&images(1, 3000), "page.toml").unwrap());
    let mut load = PageLoad::new(&page, http(Protocol::Http3), Time::ZERO);
    load.advance(Time::ZERO);
    assert_eq!(
        (load.take_connecting(), load.take_connecting()),
        (Some(0), None)
    );
    assert!(load.take_written().is_none());
    load.on_connected(Time::ZERO, 0);
    let (connection, request) = load.take_written().unwrap();
    let of_document = Exchange {
        resource: 0,
        is_last: true,
        urgency: 0,
    };
    assert_eq!(load.exchange(&request), Some(of_document));
    load.on_delivered(Time::ZERO, connection, &request);
    let record = load.take_record(Time::ZERO, connection).unwrap();
    assert_eq!(load.exchange(&record), Some(of_document));
}

#[test]
fn what_is_urgent_overtakes_unless_servers_take_turns() {
    let page = images(1, 80_000)
        + "[[resources]]\nurl = 'https://a.org/style'\ntype = 'stylesheet'\nsize = '1 kB'\n\
           after = { of = 'https://a.org/', wait = '5 ms' }\n";
    let (_, ends, _) = load(&page, http(Protocol::Http2));
    assert!(ends[2] < ends[1] - 20, "{ends:?}");
    let (_, ends, _) = load(&images(2, 40_000), http(Protocol::Http2));
    assert_eq!(ends[2] - ends[1], 30); // three records of one, then three of the other
    let in_turn = Http {
        streams: StreamOrder::RoundRobin,
        ..http(Protocol::Http2)
    };
    let (_, ends, _) = load(&images(2, 40_000), in_turn);
    assert!(ends[2] - ends[1] <= 20, "{ends:?}");
}

#[test]
fn children_wait_for_their_share_of_the_parent_and_for_tasks() {
    let page = "
        [[resources]]
        url = 'https://a.org/'
        size = '65 kB'
        [[resources]]
        url = 'https://a.org/early'
        size = '10 B'
        after = { of = 'https://a.org/', at = 0.3 }
        [[resources]]
        url = 'https://b.org/script'
        size = '10 B'
        [[resources]]
        url = 'https://a.org/late'
        size = '10 B'
        after = ['work', { of = 'https://a.org/early', wait = '3 ms' }]
        [[resources]]
        url = 'https://a.org/beacon'
        size = '10 B'
        after = 'work'
        server_time = '500 ms'
        blocks_load = false
        [[tasks]]
        id = 'work'
        time = '25 ms'
        after = 'https://b.org/script'
        [[tasks]]
        id = 'other'
        time = '100 ms'
        after = 'https://b.org/script'
    ";
    let (loaded, ends, opened) = load(page, http(Protocol::Http2));
    assert_eq!(opened, 2);
    // four records from 40 ms on; the second brings the share to 0.5; 10 ms to ask; then after the records
    assert_eq!((ends[0], ends[1]), (70, 80));
    assert_eq!(ends[2], 70 + 40);
    assert_eq!(ends[3], 110 + 25 + 20);
    assert_eq!(ends[4], 110 + 25 + 20 + 500);
    // the tasks run one after another
    assert_eq!(loaded, 110 + 25 + 100);
}
