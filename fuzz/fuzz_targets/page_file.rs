//! Page files and HTTP archives: read or refused; what is read comes back from `to_toml`, holds no query, and can be
//! loaded.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use pathcast_fuzz::write_seeds;
use pathcast_path::{Path, Span};
use pathcast_scenario::{Page, Scenario, har};
use pathcast_sim::Simulation;

fuzz_target!(init: write_seeds(seeds), |input: &[u8]| run(input));

/// Connections of a page that is loaded, at most: each costs memory before anything happens.
const MOST_CONNECTIONS: u64 = 200;

fn run(input: &[u8]) {
    let pages = match har::read(input) {
        Ok(pages) => pages.into_iter().map(|one| one.page).collect(),
        Err(_) => {
            let page = std::str::from_utf8(input).map(|text| Page::parse(text, "page.toml"));
            let Ok(Ok(page)) = page else { return };
            vec![page]
        }
    };
    for page in pages {
        assert!(
            page.resources
                .iter()
                .all(|one| !one.url.contains(['?', '#']))
        );
        assert_eq!(page.check(), Ok(()));
        let toml = page.to_toml();
        match Page::parse(&toml, "again.toml") {
            Ok(again) => assert_eq!(again, page, "{toml}"),
            Err(error) => panic!("{error}\n{toml}"),
        }
        load(&page);
    }
}

fn load(page: &Page) {
    let path = Path::parse("rate = '9 Mbit/s'\ndelay = '3 ms'\n", "path.toml");
    let mut scenario = Scenario::bulk(path.expect("it is a path"), ["cubic"]);
    let workload = format!("{{ kind = 'page', page = {} }}", page.to_inline_toml());
    scenario.set_workload(&workload).expect("the page is valid");
    if scenario.flows[0].connections() > MOST_CONNECTIONS {
        return;
    }
    let simulation = Simulation {
        scenario,
        duration: Span::from_millis(300),
        seed: 1,
    };
    // a look at progress is the end
    let outcome = simulation.run(&mut |_| ControlFlow::Break(()));
    assert!(outcome.is_ok_and(|outcome| outcome.pages().len() == 1));
}

fn seeds() -> Vec<Vec<u8>> {
    HANDWRITTEN.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// Each key once.
const HANDWRITTEN: [&str; 3] = [
    "name = 'a'\n[[resources]]\nurl = 'https://a.org/'\nsize = '9 kB'\nserver_time = '9 ms'\n[[resources]]\nid = 'b'\n\
     url = 'http://b.org/x?y'\ntype = 'script'\npriority = 'low'\nrequest = '90 B'\nheader = '80 B'\nsize = '0 B'\n\
     after = [{ of = 'https://a.org/', at = 0.5, wait = '1 ms' }, 't']\nblocks_load = false\n[[tasks]]\nid = 't'\n\
     time = '3 ms'\nafter = 'https://a.org/'\n",
    r#"{"log":{"pages":[{"id":"p","title":"t","startedDateTime":"2026-01-31T12:00:00Z","pageTimings":{"onLoad":90}}],
     "entries":[{"pageref":"p","startedDateTime":"2026-01-31T12:00:00.000Z","time":50,"request":{"url":"https://a.org/?q",
     "headers":[{"name":"a","value":"b"}],"headersSize":9,"bodySize":0},"response":{"status":200,"headersSize":9,
     "bodySize":99,"_transferSize":108,"content":{"size":200,"mimeType":"text/html"},"redirectURL":""},"timings":{
     "blocked":1,"dns":1,"connect":3,"ssl":1,"send":0,"wait":20,"receive":9}},{"startedDateTime":
     "2026-01-31T12:00:00.040Z","time":9,"request":{"url":"https://a.org/b.js"},"response":{"status":200,"content":{
     "size":7}},"_initiator":{"type":"script","url":"https://a.org/"},"_priority":"High","_resourceType":"script"}]}}"#,
    r#"{"log":{"entries":[{"startedDateTime":"2026-01-31T12:00:00+0000","request":{"url":"http://a/"},"response":{"status":
     302,"redirectURL":"http://b/"}},{"startedDateTime":"2026-01-31T12:00:01Z","request":{"url":"http://b/"},"response":{
     "status":200},"_initiator":{"stack":{"callFrames":[],"parent":{"callFrames":[{"url":"http://a/"}]}}}}]}}"#,
];
