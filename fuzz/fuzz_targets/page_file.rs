//! Page files and recordings of all formats: read or refused; what is read comes back from `to_toml`, holds no query, and
//! can be loaded.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use pathcast_fuzz::write_seeds;
use pathcast_path::{Path, Span};
use pathcast_scenario::{Page, Scenario, read_pages};
use pathcast_sim::Simulation;

fuzz_target!(init: write_seeds(seeds), |input: &[u8]| run(input));

/// Connections of a page that is loaded, at most: each costs memory before anything happens.
const MOST_CONNECTIONS: u64 = 200;

fn run(input: &[u8]) {
    let Ok(pages) = read_pages(input, "page.toml") else {
        return;
    };
    for page in pages.into_iter().map(|one| one.page) {
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
const HANDWRITTEN: [&str; 7] = [
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
    r#"{"traceEvents":[{"name":"thread_name","ph":"M","pid":1,"tid":2,"args":{"name":"CrRendererMain"}},{"name":
     "navigationStart","ph":"R","ts":1e6,"pid":1,"tid":2,"args":{"frame":"F","data":{"documentLoaderURL":"http://a/",
     "isLoadingMainFrame":true,"isOutermostMainFrame":true}}},{"name":"ResourceWillSendRequest","ph":"I","ts":1e6,"pid":3,
     "tid":2,"args":{"data":{"requestId":"1"}}},{"name":"ResourceSendRequest","ph":"I","ts":1000100,"pid":1,"tid":2,"args":
     {"data":{"requestId":"1","frame":"F","url":"http://a/?q","requestMethod":"GET","priority":"VeryHigh","resourceType":
     "Document","initiator":{"type":"other"},"stackTrace":[{"url":"http://a/"}]}}},{"name":"ResourceReceiveResponse","ph":
     "I","ts":1040000,"pid":1,"tid":2,"args":{"data":{"requestId":"1","statusCode":200,"mimeType":"text/html","protocol":
     "h2","fromCache":false,"encodedDataLength":90,"timing":{"requestTime":1.0,"connectStart":1,"connectEnd":9,"sslStart":
     3,"sslEnd":9,"sendEnd":9,"receiveHeadersEnd":30}}}},{"name":"ResourceReceivedData","ph":"I","ts":1050000,"pid":1,
     "tid":2,"args":{"data":{"requestId":"1","encodedDataLength":50}}},{"name":"RunTask","ph":"X","ts":1060000,"dur":
     20000,"pid":1,"tid":2,"args":{}},{"name":"ParseHTML","ph":"X","ts":1061000,"dur":900,"pid":1,"tid":2,"args":
     {"beginData":{"url":"http://a/"}}},{"name":"ResourceSendRequest","ph":"I","ts":1065000,"pid":1,"tid":2,"args":{"data":
     {"requestId":"2","url":"http://a/b.js"}}},{"name":"ResourceReceiveResponse","ph":"I","ts":1082000,"args":{"data":
     {"requestId":"2","statusCode":200,"mimeType":"text/javascript"}}},{"name":"ResourceFinish","ph":"I","ts":1085000,
     "args":{"data":{"requestId":"2","encodedDataLength":70}}},{"name":"ResourceFinish","ph":"I","ts":1090000,"pid":1,
     "tid":2,"args":{"data":{"requestId":"1","encodedDataLength":999,"decodedBodyLength":3000,"finishTime":1.08,"didFail":
     false}}},{"name":"RunTask","ph":"X","ts":1100000,"dur":15000,"pid":1,"tid":2},{"name":"MarkLoad","ts":1200000,"args":
     {"data":{"frame":"F"}}}]}"#,
    r#"[{"name":"ResourceSendRequest","ph":"I","ts":9,"pid":1,"tid":2,"args":{"data":{"requestId":"1","url":"http://a/"}}},
     {"name":"ResourceSendRequest","ph":"I","ts":99,"pid":1,"tid":2,"args":{"data":{"requestId":"1","url":"http://a/b"}}},
     {"name":"ResourceReceiveResponse","ph":"I","ts":200,"args":{"data":{"requestId":"1","statusCode":200}}},{"name":
     "ResourceFinish","ph":"I","ts":300,"args":{"data":{"requestId":"1"}}},{"name":"ResourceMarkAsCached","ts":1,"args":
     {"data":{"requestId":"3"}}},{"name":"EvaluateScript","ph":"B","ts":400,"pid":1,"tid":2,"args":{"data":{"url":
     "http://a/b"}}},{"name":"EvaluateScript","ph":"E","ts":90400,"pid":1,"tid":2},"#,
    r#"{"name":"a","start_activity":"d1","load_activity":"c2","objs":[{"id":"r1","host":"a.org","path":"/",
     "when_comp_start":1,"download":{"id":"d1","type":"text/html","len":9000,"s_time":0,"connectStart":0,"connectEnd":3,
     "sslStart":1,"sslEnd":3,"sendEnd":3,"receiveHeadersEnd":9,"receivedTime":"30.5"},"comps":[{"id":"c1","type":
     "evalhtml","time":50}]},{"id":"r2","url":"http://a.org/b","when_comp_start":-1,"download":{"id":"d2","type":
     "download"},"comps":[{"id":"c2","type":"evaljs","s_time":60,"e_time":70}]}],"deps":[{"id":"x","a1":"c1","a2":"d2",
     "time":20},{"a1":"d1","a2":"c2","time":-1}]}"#,
    r#"[{"id":"a","objs":[{"activityId":"Networking_0","url":"http://a/","startTime":0,"endTime":90,
     "responseReceivedTime":30,"mimeType":"text/html","transferSize":900,"statusCode":200},["Loading_0",{"url":
     "http://a/","startTime":40,"endTime":99}],{"activityId":"Scripting_0","startTime":50,"endTime":80},{"activityId":
     "Rendering_1","startTime":60,"endTime":75},{"activityId":"Networking_1","url":"http://a/b","startTime":60,"endTime":
     80}]},{"id":"Deps","objs":[{"a1":"Networking_0","a2":"Loading_0","time":40},{"a1":"Scripting_0","a2":"Networking_1",
     "time":60},{"a1":"Loading_0","a2":"Scripting_0","time":50}]}]"#,
];
