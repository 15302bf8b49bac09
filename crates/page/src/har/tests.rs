use super::*;
use crate::page::{Kind, Node, Priority};

/// An archive of these entries; each a URL, its time in ms, how long it took, and more JSON.
fn archive(entries: &[(&str, u32, u32, &str)]) -> String {
    let entries = entries.iter().map(|(url, at, took, more)| {
        format!(
            r#"{{"pageref": "p", "startedDateTime": "2026-01-31T12:00:00.{at:03}Z", "time": {took},
            "request": {{"method": "GET", "url": "{url}", "headers": [{{"name": "Cookie", "value": "token=SECRET"}}],
                         "headersSize": 400, "bodySize": 0}},
            "response": {{"status": 200, "headersSize": 250, "bodySize": 5000, "content": {{"size": 9000}}}},
            "timings": {{"blocked": 0, "dns": -1, "connect": -1, "send": 0, "wait": 10, "receive": {}}}{more}}}"#,
            took - 10
        )
    });
    let entries: Vec<_> = entries.collect();
    format!(
        r#"{{"log": {{"version": "1.2", "pages": [{{"id": "p", "title": "", "startedDateTime":
        "2026-01-31T12:00:00.000Z", "pageTimings": {{"onLoad": 400}}}}], "entries": [{}]}}}}"#,
        entries.join(",")
    )
}

const ROOT: &str = "https://example.org/?session=SECRET";

fn only(text: &str) -> HarPage {
    let mut pages = read(text.as_bytes()).unwrap();
    assert_eq!(pages.len(), 1);
    pages.remove(0)
}

fn causes(page: &HarPage, number: usize) -> (usize, f64, f64) {
    let [cause] = page.page.resources[number].causes[..] else {
        panic!("{:?}", page.page.resources[number].causes);
    };
    let Node::Resource(of) = cause.of else {
        panic!()
    };
    (of, cause.at, cause.wait.as_secs())
}

#[test]
fn a_connection_that_served_two_origins_is_noted() {
    let by = |connection: u32| format!(r#", "connection": "{connection}""#);
    let text = archive(&[
        (ROOT, 0, 110, &by(17)),
        ("https://img.example.org/a.png", 120, 40, &by(17)),
        ("https://other.org/b.png", 120, 40, &by(18)),
    ]);
    assert!(only(&text).page.coalesced.is_empty());
    let text = text.replace(r#""status": 200"#, r#""status": 200, "httpVersion": "h2""#);
    let page = only(&text).page;
    assert_eq!(
        page.coalesced,
        [["https://example.org", "https://img.example.org"]]
    );
    assert_eq!(page.connections(crate::Protocol::Http2), 2);
    assert_eq!(page.connections(crate::Protocol::Http1), 3);
    assert_eq!(Page::parse(&page.to_toml(), "page.toml").unwrap(), page);
}

#[test]
fn initiators_and_times_make_the_graph() {
    let by = |url: &str| format!(r#", "_initiator": {{"type": "parser", "url": "{url}"}}"#);
    let stack = r#", "_initiator": {"type": "script", "stack": {"callFrames": [],
        "parent": {"callFrames": [{"url": "https://example.org/app.js"}]}}}, "_priority": "VeryLow""#;
    let page = only(&archive(&[
        (ROOT, 0, 110, ""),
        ("https://example.org/app.js", 60, 70, &by(ROOT)),
        ("https://cdn.example.org/a.woff2?k=SECRET", 135, 40, stack),
        (
            "https://example.org/late.png",
            150,
            40,
            r#", "_initiator": "https://example.org/""#,
        ),
        ("https://example.org/beacon", 450, 40, &by(ROOT)),
    ]));
    assert!(page.warnings.is_empty(), "{:?}", page.warnings);
    assert_eq!(causes(&page, 1), (0, 0.5, 0.0)); // 50 of 100 ms of the document had come
    assert_eq!(causes(&page, 2), (1, 1.0, 0.005)); // the script ran for 5 ms
    assert_eq!(causes(&page, 3), (1, 1.0, 0.02)); // the parser was held by the script
    let resource = &page.page.resources[2];
    assert_eq!(
        (resource.kind, resource.priority),
        (Kind::Font, Priority::Lowest)
    );
    assert_eq!(
        (
            resource.request_bytes,
            resource.header_bytes,
            resource.body_bytes
        ),
        (400, 250, 5000)
    );
    let blocks: Vec<_> = page
        .page
        .resources
        .iter()
        .map(|one| one.blocks_load)
        .collect();
    assert_eq!(blocks, [true, true, true, true, false]); // asked for after the load event
    assert!((page.on_load_ms.unwrap() - 400.0).abs() < 1e-9);
    // what may be secret is nowhere
    assert!(!format!("{page:?}").contains("SECRET"));
    assert!(!page.page.to_toml().contains("SECRET"));
}

#[test]
fn the_page_file_holds_all_of_it() {
    let page = only(&archive(&[
        (ROOT, 0, 110, ""),
        ("https://example.org/a\\\"b.css", 60, 70, ""),
        ("https://example.org/c.png", 460, 70, ""),
    ]));
    let again = Page::parse(&page.page.to_toml(), "again.toml").unwrap();
    assert_eq!(again, page.page);
}

#[test]
fn without_initiators_the_referer_tells_and_that_is_said() {
    let referer = r#", "request": {"url": "https://example.org/bg.png", "headers": [{"name": "referer",
        "value": "https://example.org/style.css"}]}"#;
    let entries = archive(&[
        (ROOT, 0, 50, ""),
        ("https://example.org/style.css", 40, 40, ""),
    ]);
    let tail = entries.rfind("]}}").unwrap();
    let more = r#",{"startedDateTime": "2026-01-31T12:00:00.090Z", "time": 20, "pageref": "p",
        "response": {"status": 200, "content": {"size": 700}}, "timings": {"wait": 9}"#;
    let text = format!("{}{more}{referer}}}{}", &entries[..tail], &entries[tail..]);
    let page = only(&text);
    assert_eq!(causes(&page, 2), (1, 1.0, 0.01));
    let said = page.warnings.join("\n");
    assert!(
        said.contains("inferred") && said.contains("2 of 3"),
        "{said}"
    );
    assert!(said.contains("after decompression"), "{said}");
}

#[test]
fn a_redirection_leads_to_its_target() {
    let to = r#", "response": {"status": 302, "redirectURL": "https://example.org/there", "bodySize": 0}"#;
    let text = archive(&[(ROOT, 0, 30, ""), ("https://example.org/there", 30, 50, "")]);
    let response = text.find(r#""response""#).unwrap();
    let end = response + text[response..].find("},\n").unwrap() + 1;
    let text = format!("{}{}{}", &text[..response - 1], &to[2..], &text[end..]);
    assert_eq!(causes(&only(&text), 1), (0, 1.0, 0.0));
}

#[test]
fn what_is_cut_off_is_read_as_far_as_it_goes() {
    let whole = archive(&[(ROOT, 0, 110, ""), ("https://example.org/a.js", 60, 70, "")]);
    let second = whole.rfind("\"startedDateTime\"").unwrap();
    let page = only(&whole[..second]);
    assert_eq!(page.page.resources.len(), 1);
    assert!(
        page.warnings[0].contains("cut off or damaged after 1 entry"),
        "{:?}",
        page.warnings
    );
    let first = whole.find("\"request\"").unwrap();
    let error = read(&whole.as_bytes()[..first]).unwrap_err();
    assert_eq!(error.entry, Some(1), "{error}");
}

#[test]
fn what_cannot_be_used_says_why() {
    let error = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
    assert!(error("").starts_with("is not a HAR"), "{}", error(""));
    assert!(error("{}").contains("no `log`"));
    assert!(
        error("[1, 2]").contains("expected an object with `log`"),
        "{}",
        error("[1, 2]")
    );
    assert!(error(r#"{"log": {"entries": []}}"#).contains("no entries"));
    let no_date = archive(&[(ROOT, 0, 110, "")])
        .replace("2026-01-31T12:00:00.000Z\", \"time", "soon\", \"time");
    assert!(
        error(&no_date).starts_with("entry 1: startedDateTime"),
        "{}",
        error(&no_date)
    );
    let unanswered = archive(&[(ROOT, 0, 110, "")]).replace("\"status\": 200", "\"status\": 0");
    assert!(error(&unanswered).contains("entry 1: the request was not answered"));
}

#[test]
fn strange_values_count_as_missing() {
    let strange = archive(&[(ROOT, 0, 110, ""), ("https://example.org/a.js", 60, 70, "")])
        .replace("\"wait\": 10", "\"wait\": -500")
        .replace(
            "\"bodySize\": 5000",
            "\"bodySize\": {\"binary\": [1, null]}",
        )
        .replace("\"headersSize\": 250", "\"headersSize\": 1e300");
    let page = only(&strange);
    assert_eq!(page.page.resources[1].body_bytes, 9000);
    assert_eq!(page.page.resources[1].header_bytes, 1_000_000);
}

#[test]
fn the_largest_size_fits_into_a_page_file() {
    let page =
        only(&archive(&[(ROOT, 0, 110, "")]).replace("\"bodySize\": 5000", "\"bodySize\": 1e300"));
    assert_eq!(page.page.body_bytes(), Page::MAX_BYTES);
    assert_eq!(
        Page::parse(&page.page.to_toml(), "again.toml"),
        Ok(page.page)
    );
}

/// Events of the DevTools protocol.
fn log() -> String {
    let event =
        |method: &str, params: &str| format!(r#"{{"method": "{method}", "params": {{{params}}}}}"#);
    let sent = |id: &str, at: f64, url: &str, more: &str| {
        event(
            "Network.requestWillBeSent",
            &format!(
                r#""requestId": "{id}", "timestamp": {at}, "request": {{"url": "{url}", "initialPriority": "High"}} {more}"#
            ),
        )
    };
    let received = |id: &str, at: f64, status: u32| {
        event(
            "Network.responseReceived",
            &format!(
                r#""requestId": "{id}", "timestamp": {at}, "response": {{"status": {status}, "mimeType": "text/javascript",
                "encodedDataLength": 200, "protocol": "h2"}}"#
            ),
        )
    };
    let finished = |id: &str, at: f64, bytes: u32| {
        event(
            "Network.loadingFinished",
            &format!(r#""requestId": "{id}", "timestamp": {at}, "encodedDataLength": {bytes}"#),
        )
    };
    let by = r#", "type": "Script", "initiator": {"type": "parser", "url": "https://a.org/"}"#;
    let redirect = r#", "redirectResponse": {"status": 302, "encodedDataLength": 150}"#;
    [
        sent("1", 5000.0, "https://a.org/?q=SECRET", ""),
        received("1", 5000.1, 200),
        sent("2", 5000.15, "https://a.org/old.js", by),
        finished("1", 5000.2, 9200),
        sent(
            "2",
            5000.25,
            "https://a.org/new.js",
            &format!("{by}{redirect}"),
        ),
        received("2", 5000.3, 200),
        finished("2", 5000.35, 700),
        sent("3", 5000.4, "https://a.org/never.js", by),
        event("Page.loadEventFired", r#""timestamp": 5000.36"#),
        r#"{"method": 7}"#.into(),
    ]
    .join(",")
}

#[test]
fn a_log_of_the_devtools_protocol_is_a_page() {
    let page = only(&format!("[{}]", log()));
    let urls: Vec<_> = page
        .page
        .resources
        .iter()
        .map(|one| one.url.as_str())
        .collect();
    assert_eq!(
        urls,
        [
            "https://a.org/",
            "https://a.org/old.js",
            "https://a.org/new.js"
        ]
    );
    assert_eq!(causes(&page, 1), (0, 0.5, 0.0));
    assert_eq!(causes(&page, 2), (1, 1.0, 0.0));
    let last = &page.page.resources[2];
    assert_eq!(
        (last.kind, last.header_bytes, last.body_bytes),
        (Kind::Script, 200, 500)
    );
    assert!((page.on_load_ms.unwrap() - 360.0).abs() < 0.01);
    assert!(!format!("{page:?}").contains("SECRET"));
    let error = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
    assert!(error("[{}]").contains("has no request"));
    assert!(error("[{]").contains("neither a HAR nor a log"));
    assert!(is_one(b" [ {") && is_one(b"{") && !is_one(b"[[resources]]") && !is_one(b""));
}
