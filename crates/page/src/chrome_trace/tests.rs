use Node::{Resource as R, Task as T};
use pathcast_path::Span;

use super::*;
use crate::page::{Cause, Kind, Node, Page, Priority};

/// An event of the page's main thread, `at_ms` after the navigation.
fn event(name: &str, phase: &str, at_ms: f64, more: &str) -> String {
    let ts_us = 1e9 + 1e3 * at_ms;
    let args = if more.contains("args") {
        ""
    } else {
        r#", "args": {}"#
    };
    format!(
        r#"{{"cat": "devtools.timeline", "name": "{name}", "ph": "{phase}", "pid": 2521, "tid": 775, "ts": {ts_us}
        {args} {more}}}"#
    )
}

fn of_request(name: &str, at_ms: f64, id: &str, more: &str) -> String {
    let args =
        format!(r#", "s": "t", "args": {{"data": {{"requestId": "{id}", "frame": "F" {more}}}}}"#);
    event(name, "I", at_ms, &args)
}

fn send(at_ms: f64, id: &str, url: &str, priority: &str, more: &str) -> String {
    let more = format!(
        r#", "url": "https://a.org/{url}", "requestMethod": "GET", "priority": "{priority}" {more}"#
    );
    of_request("ResourceSendRequest", at_ms, id, &more)
}

/// The response, sent `sent_ms` after the navigation and answered `wait_ms` later.
fn receive(at_ms: f64, id: &str, mime_type: &str, sent_ms: f64, wait_ms: f64) -> String {
    let more = format!(
        r#", "statusCode": 200, "mimeType": "{mime_type}", "protocol": "h2", "fromCache": false, "encodedDataLength": 200,
        "timing": {{"requestTime": {}, "dnsStart": -1, "connectStart": -1, "connectEnd": -1, "sslStart": -1, "sslEnd": -1,
        "sendStart": 0, "sendEnd": 0, "receiveHeadersEnd": {wait_ms}}}"#,
        1e3 + sent_ms / 1e3
    );
    of_request("ResourceReceiveResponse", at_ms, id, &more)
}

fn finish(at_ms: f64, id: &str, bytes: u32) -> String {
    let more = format!(
        r#", "didFail": false, "encodedDataLength": {bytes}, "decodedBodyLength": {}, "finishTime": 0"#,
        2 * bytes
    );
    of_request("ResourceFinish", at_ms, id, &more)
}

fn task(name: &str, at_ms: f64, took_ms: f64, more: &str) -> String {
    event(
        name,
        "X",
        at_ms,
        &format!(r#", "dur": {}, "tdur": 7 {more}"#, 1e3 * took_ms),
    )
}

fn of_url(url: &str) -> String {
    format!(r#", "args": {{"data": {{"url": "https://a.org/{url}", "lineNumber": 1}}}}"#)
}

fn names() -> Vec<String> {
    let name = |pid, tid, name| {
        format!(
            r#"{{"args": {{"name": "{name}"}}, "cat": "__metadata", "name": "thread_name", "ph": "M", "pid": {pid},
            "tid": {tid}, "ts": 0}}"#
        )
    };
    vec![
        name(2521, 14851, "Compositor"),
        name(2521, 775, "CrRendererMain"),
        name(2518, 775, "CrBrowserMain"),
    ]
}

fn navigation(at_ms: f64, url: &str) -> String {
    let args = format!(
        r#", "args": {{"frame": "F", "data": {{"documentLoaderURL": "{url}", "isLoadingMainFrame": true,
        "isOutermostMainFrame": true, "navigationId": "N"}}}}"#
    );
    event("navigationStart", "R", at_ms, &args)
}

/// The document, from its request to its end.
fn document() -> Vec<String> {
    let timed = r#", "statusCode": 200, "mimeType": "text/html", "encodedDataLength": 300, "timing": {"requestTime": 1000,
        "connectStart": 0, "connectEnd": 40, "sslStart": 20, "sslEnd": 40, "sendStart": 40, "sendEnd": 40,
        "receiveHeadersEnd": 100}"#;
    let finished = r#", "didFail": false, "encodedDataLength": 10300, "decodedBodyLength": 40000, "finishTime": 1000.2"#;
    vec![
        navigation(0.0, "https://a.org/?q=SECRET"),
        of_request("ResourceWillSendRequest", 0.0, "N", "").replace("2521", "2518"),
        send(
            110.0,
            "N",
            "?q=SECRET",
            "VeryHigh",
            r#", "resourceType": "Document""#,
        ),
        of_request("ResourceReceiveResponse", 110.1, "N", timed),
        of_request(
            "ResourceReceivedData",
            120.0,
            "N",
            r#", "encodedDataLength": 5000"#,
        ),
        of_request("ResourceFinish", 300.0, "N", finished),
    ]
}

/// A page with a script that asks for an image, and tasks.
fn whole() -> Vec<String> {
    let by_parser = r#", "initiator": {"fetchType": "script", "type": "parser", "url": "https://a.org/?q=SECRET"}"#;
    let by_script = r#", "initiator": {"type": "script"}, "stackTrace": [{"functionName": "f", "url": "",
        "scriptId": "1"}, {"functionName": "g", "url": "https://a.org/app.js?v=SECRET", "scriptId": "2"}]"#;
    let parsed = r#", "args": {"beginData": {"frame": "F", "startLine": 0, "url": "https://a.org/?q=SECRET"}}"#;
    let load = |at_ms, frame: &str| {
        let args = format!(r#", "args": {{"data": {{"frame": "{frame}", "isMainFrame": true}}}}"#);
        event("MarkLoad", "I", at_ms, &args)
    };
    let mut events = document();
    events.extend([
        // half of the document is there
        task("RunTask", 150.0, 50.0, ""),
        task("ParseHTML", 151.0, 40.0, parsed),
        send(160.0, "1", "app.js?v=SECRET", "High", by_parser),
        task("ThreadControllerImpl::RunTask", 210.0, 5.0, ""),
        receive(221.0, "1", "text/javascript", 160.0, 60.0),
        finish(240.0, "1", 4200),
        task("RunTask", 250.0, 100.0, ""),
        task("v8.compile", 251.0, 3.0, &of_url("app.js?v=SECRET")),
        task("EvaluateScript", 254.0, 90.0, &of_url("app.js?v=SECRET")),
        send(300.0, "2", "hero.png", "Low", by_script),
        receive(520.0, "2", "image/png", 300.0, 200.0),
        finish(590.0, "2", 90_200),
        load(400.0, "an advertisement"),
        load(500.0, "F"),
        task("RunTask", 600.0, 20.0, ""),
        // of another thread
        task("RunTask", 100.0, 900.0, "").replace("775", "14851"),
    ]);
    events.extend(names());
    events
}

fn text(events: &[String]) -> String {
    let events = events.join(",\n");
    format!(r#"{{"metadata": {{"source": "DevTools"}}, "traceEvents": [{{}}, {events}]}}"#)
}

fn only(text: &str) -> HarPage {
    let mut pages = crate::formats::read(text.as_bytes()).unwrap();
    assert_eq!(pages.len(), 1);
    pages.remove(0)
}

fn error(text: &str) -> String {
    read(text.as_bytes()).unwrap_err().to_string()
}

/// Of each cause: what, how much of it, and how many milliseconds later.
fn causes(all: &[Cause]) -> Vec<(Node, f64, u64)> {
    let of = |cause: &Cause| (cause.of, cause.at, cause.wait.as_nanos() / 1_000_000);
    all.iter().map(of).collect()
}

#[test]
fn requests_have_their_sizes_priorities_and_times() {
    let page = only(&text(&whole()));
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
            "https://a.org/app.js",
            "https://a.org/hero.png"
        ]
    );
    let of = |number: usize| {
        let one = &page.page.resources[number];
        (one.kind, one.priority, one.header_bytes, one.body_bytes)
    };
    assert_eq!(of(0), (Kind::Document, Priority::Highest, 300, 10_000));
    assert_eq!(of(1), (Kind::Script, Priority::High, 200, 4000));
    assert_eq!(of(2), (Kind::Image, Priority::Low, 200, 90_000));
    // 60 ms less the 20 ms in which the connection opened
    assert_eq!(page.page.resources[0].server_time, Span::from_millis(40));
    assert!((page.on_load_ms.unwrap() - 500.0).abs() < 0.01);
    assert!(!format!("{page:?}").contains("SECRET"));
}

#[test]
fn tasks_wait_for_what_they_work_on_and_cause_what_they_ask_for() {
    let page = only(&text(&whole()));
    let tasks = page.page.tasks.iter();
    let tasks: Vec<_> = tasks
        .map(|one| {
            (
                one.id.as_str(),
                one.time.as_nanos() / 1_000_000,
                causes(&one.causes),
                one.blocks_load,
            )
        })
        .collect();
    assert_eq!(
        tasks,
        [
            // cut where the parser asks for the script
            ("task-1.1", 10, vec![(R(0), 0.5, 0)], true),
            ("task-1.2", 40, vec![(T(0), 1.0, 0)], true),
            // the thread was idle for 10 ms after the script had come
            ("task-2.1", 50, vec![(R(1), 1.0, 10)], true),
            ("task-2.2", 50, vec![(T(2), 1.0, 0)], true),
            // after the load event; the image came last before
            ("task-3", 20, vec![(R(2), 1.0, 10)], false),
        ]
    );
    assert_eq!(
        causes(&page.page.resources[1].causes),
        [(R(0), 0.6, 0), (T(0), 1.0, 0)]
    );
    // the task explains the 60 ms between the script's end and the request
    assert_eq!(
        causes(&page.page.resources[2].causes),
        [(R(1), 1.0, 0), (T(2), 1.0, 0)]
    );
    let said = page.warnings.join("\n");
    assert!(
        said.contains("what 1 of 3 tasks wait for is inferred"),
        "{said}"
    );
    assert!(
        !said.contains("several navigations") && !said.contains("not have their end"),
        "{said}"
    );
    let again = Page::parse(&page.page.to_toml(), "again.toml").unwrap();
    assert_eq!(again, page.page);
}

#[test]
fn without_tasks_and_names_of_threads_work_stands_for_them() {
    let mut events = document();
    events.extend([
        send(205.0, "1", "app.js", "High", ""),
        finish(230.0, "1", 100), // not answered
        event("EvaluateScript", "B", 240.0, &of_url("app.js")),
        event("FunctionCall", "B", 245.0, ""),
        event("FunctionCall", "E", 250.0, ""),
        event("EvaluateScript", "E", 260.0, ""),
        event("EvaluateScript", "E", 270.0, ""),
        task("EvaluateScript", 280.0, 12.0, &of_url("")),
        task("Layout", 300.0, 9.0, ""),
        task("UnknownWork", 320.0, 90.0, ""),
    ]);
    let page = only(&text(&events));
    let times: Vec<_> = page
        .page
        .tasks
        .iter()
        .map(|one| one.time.as_nanos() / 1_000_000)
        .collect();
    assert_eq!(times, [20, 12]);
    // the script is not part of the page: what had ended last is the document, 40 ms before
    assert_eq!(causes(&page.page.tasks[0].causes), [(R(0), 1.0, 40)]);
    // the document, and the 20 ms in which the thread was idle
    assert_eq!(causes(&page.page.tasks[1].causes), [(R(0), 1.0, 20)]);
    assert!(
        page.warnings
            .iter()
            .any(|one| one.contains("no time of the load event"))
    );
}

#[test]
fn without_initiators_the_work_that_asks_is_the_cause() {
    let mut events = document();
    events.extend([
        task("EvaluateScript", 150.0, 6.0, &of_url("")),
        send(152.0, "1", "app.js", "High", ""),
        receive(160.0, "1", "text/javascript", 152.0, 8.0),
        finish(170.0, "1", 700),
        task("RunTask", 210.0, 9.0, ""),
        task("EvaluateScript", 210.5, 8.0, &of_url("app.js")),
        task("FunctionCall", 211.0, 1.0, &of_url("")),
        send(213.0, "2", "of-app.png", "Low", ""),
        receive(230.0, "2", "image/png", 213.0, 17.0),
        finish(240.0, "2", 700),
        send(219.5, "3", "of-none.png", "Low", ""),
        receive(230.0, "3", "image/png", 219.5, 10.0),
        finish(240.0, "3", 700),
    ]);
    let page = only(&text(&events));
    let of = |number: usize| page.page.resources[number].causes[0].of;
    assert_eq!([of(1), of(2), of(3)], [R(0), R(1), R(0)]);
    let said = page.warnings.join("\n");
    assert!(
        said.contains("ask for 1 of 4 resources is inferred"),
        "{said}"
    );
    assert!(page.page.tasks.is_empty(), "{:?}", page.page.tasks); // too short
}

#[test]
fn tasks_are_those_of_the_renderer_that_asked_for_the_document() {
    let mut events = whole();
    let of_other = |event: String| event.replace("2521", "3000");
    for (id, at_ms) in [("7", 310.0), ("8", 311.0), ("9", 312.0), ("10", 313.0)] {
        events.push(of_other(send(at_ms, id, "ad.png", "Low", "")));
        events.push(receive(at_ms + 9.0, id, "image/png", at_ms, 9.0));
        events.push(finish(at_ms + 10.0, id, 300));
    }
    events.extend(names().into_iter().map(of_other));
    events.push(of_other(task("RunTask", 305.0, 50.0, "")));
    // nor a worker of the same process
    events.push(task("RunTask", 305.0, 50.0, "").replace("775", "99"));
    let page = only(&text(&events)).page;
    assert_eq!(page.resources.len(), 7);
    assert_eq!(page.tasks, only(&text(&whole())).page.tasks);
}

#[test]
fn redirections_caches_and_failures() {
    let mut events = document();
    events.extend([
        send(205.0, "1", "old.js", "High", ""),
        send(225.0, "1", "new.js", "High", ""),
        receive(245.0, "1", "text/javascript", 225.0, 20.0),
        finish(250.0, "1", 700),
        send(206.0, "2", "cached.css", "VeryHigh", ""),
        of_request("ResourceMarkAsCached", 206.1, "2", ""),
        receive(207.0, "2", "text/css", 206.0, 0.0),
        finish(207.5, "2", 0),
        send(208.0, "3", "failed.js", "High", ""),
        receive(209.0, "3", "text/javascript", 208.0, 1.0),
        of_request("ResourceFinish", 210.0, "3", r#", "didFail": true"#),
        send(211.0, "4", "never.js", "High", ""),
        // an older version says only how large the pieces are
        send(212.0, "5", "old-version.js", "High", ""),
        receive(230.0, "5", "text/javascript", 212.0, 18.0),
        of_request(
            "ResourceReceivedData",
            231.0,
            "5",
            r#", "encodedDataLength": 1000"#,
        ),
        of_request(
            "ResourceReceivedData",
            232.0,
            "5",
            r#", "encodedDataLength": 234"#,
        ),
        of_request("ResourceFinish", 233.0, "5", r#", "didFail": false"#),
    ]);
    // in any order
    events.reverse();
    let page = only(&text(&events));
    let found: Vec<_> = page
        .page
        .resources
        .iter()
        .map(|one| (&one.url["https://a.org".len()..], one.body_bytes))
        .collect();
    assert_eq!(
        found,
        [
            ("/", 10_000),
            ("/old.js", 0),
            ("/old-version.js", 1234),
            ("/new.js", 500)
        ]
    );
    assert_eq!(causes(&page.page.resources[3].causes), [(R(1), 1.0, 0)]);
    let said = page.warnings.join("\n");
    assert!(said.contains("1 entry was left out"), "{said}"); // the cached one
    assert!(said.contains("1 responses redirect"), "{said}");
    assert!(said.contains("1 requests were left out"), "{said}");
    assert!(said.contains("no tasks of at least 10 ms"), "{said}");
}

#[test]
fn the_first_navigation_is_read() {
    let mut events = whole();
    events.extend([
        send(-20.0, "before", "before.js", "High", ""),
        receive(-10.0, "before", "text/javascript", -20.0, 5.0),
        finish(10.0, "before", 100),
        task("RunTask", -100.0, 50.0, ""),
        navigation(-200.0, "about:blank"),
        // of a frame within the page
        navigation(300.0, "https://b.org/").replace("true", "false"),
        navigation(700.0, "https://a.org/second"),
        send(701.0, "M", "second", "VeryHigh", ""),
        receive(702.0, "M", "text/html", 701.0, 1.0),
        finish(703.0, "M", 100),
        task("RunTask", 710.0, 50.0, ""),
    ]);
    let page = only(&text(&events));
    assert_eq!(page.page, only(&text(&whole())).page);
    assert!(
        page.warnings
            .iter()
            .any(|one| one.contains("several navigations"))
    );
}

#[test]
fn a_list_without_its_end_is_read_as_far_as_it_goes() {
    let list = whole().join(",\n");
    let page = only(&format!("[{list},"));
    assert_eq!(page.page, only(&text(&whole())).page);
    assert!(
        page.warnings[0].contains("cut off or damaged"),
        "{:?}",
        page.warnings
    );
    assert_eq!(only(&format!(" [ {list} ] ")).page, page.page);
    let cut = list.find("decodedBodyLength").unwrap();
    assert_eq!(
        error(&format!("[{}", &list[..cut])),
        "no request of the trace was finished"
    );
}

#[test]
fn what_cannot_be_used_says_why_and_where() {
    assert!(error("{}").contains("no list `traceEvents`"));
    assert!(
        error("7").starts_with("is not a Chrome trace"),
        "{}",
        error("7")
    );
    assert!(error(r#"{"traceEvents": 7}"#).starts_with("is not a Chrome trace"));
    assert!(error(r#"{"traceEvents": [{"name": "RunTask"}]}"#).contains("no requests"));
    let bad = r#"[{"ph": "X"}, {"ph": "X"}, {"ph": oops}]"#;
    assert!(error(bad).starts_with("event 3: "), "{}", error(bad));
    let deep = format!(r#"[{{"ph": "X"}}, {{"args": {}"#, "[".repeat(100_000));
    assert!(error(&deep).starts_with("event 2: "), "{}", error(&deep));
    let never = [send(0.0, "1", "", "High", ""), finish(5.0, "1", 10)].join(",");
    assert_eq!(
        error(&format!("[{never}]")),
        "event 1: the request was not answered"
    );
    let data = [
        finish(5.0, "1", 10),
        send(0.0, "1", "", "High", "").replace("https:", "data:"),
        receive(5.0, "1", "text/html", 0.0, 5.0),
    ];
    let data = error(&format!("[{}]", data.join(",")));
    assert_eq!(data, "event 2: the URL of the request is not one of HTTP");
}

#[test]
fn strange_values_do_not_get_in() {
    let mut events = whole();
    events.extend([
        task("RunTask", 650.0, -50.0, ""),
        task("RunTask", 655.0, 50.0, "").replace("\"ts\": ", "\"ts\": -"),
        task("RunTask", 660.0, 1e300, ""),
        task("RunTask", 670.0, 50.0, "").replace("\"ts\": ", "\"ts\": [], \"at\": "),
        event(
            "EvaluateScript",
            "X",
            680.0,
            r#", "dur": "long", "args": [1, {"data": 3}]"#,
        ),
        of_request("ResourceFinish", 690.0, "2", ""),
        of_request("ResourceSendRequest", 691.0, "", ""),
        "null, 3, \"name\", [[]]".into(),
    ]);
    let page = only(&text(&events));
    assert_eq!(page.page.resources, only(&text(&whole())).page.resources);
    // only the endless one is a task, cut at the longest time that is believed
    assert_eq!(page.page.tasks.len(), 6);
    assert_eq!(page.page.tasks[5].time, Span::from_millis(3_600_000));
}

#[test]
fn many_requests_and_tasks_of_one_url_take_no_long_time() {
    let mut events = document();
    for number in 0..10_000_u32 {
        let (id, at_ms) = (format!("r{number}"), 200.0 + 20.0 * f64::from(number));
        events.push(task("RunTask", at_ms, 15.0, ""));
        events.push(task("EvaluateScript", at_ms + 1.0, 1.0, &of_url("app.js")));
        events.push(send(at_ms + 2.0, &id, "app.js", "High", ""));
        events.push(receive(
            at_ms + 1e6,
            &id,
            "text/javascript",
            at_ms + 2.0,
            1e6,
        ));
        events.push(finish(at_ms + 1e6, &id, 300));
    }
    let page = only(&text(&events));
    assert_eq!(
        (page.page.resources.len(), page.page.tasks.len()),
        (10_001, 19_998)
    );
    assert!(
        page.warnings
            .iter()
            .any(|one| one.contains("1 tasks were left out")),
        "{:?}",
        page.warnings
    );
}
