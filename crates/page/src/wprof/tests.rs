use Node::{Resource as R, Task as T};

use super::*;
use crate::formats::read;
use crate::page::{Cause, Kind, Node, Page, Priority};

fn only(text: &str) -> HarPage {
    let mut pages = read(text.as_bytes()).unwrap();
    assert_eq!(pages.len(), 1);
    let page = pages.remove(0);
    let again = Page::parse(&page.page.to_toml(), "again.toml").unwrap();
    assert_eq!(again, page.page);
    page
}

fn error(text: &str) -> String {
    read(text.as_bytes()).unwrap_err().to_string()
}

/// Of each cause: what, how much of it, and how many microseconds later.
type Causes = Vec<(Node, f64, u64)>;

fn causes(all: &[Cause]) -> Causes {
    let of = |cause: &Cause| (cause.of, cause.at, cause.wait.as_nanos() / 1000);
    all.iter().map(of).collect()
}

fn resource(page: &HarPage, number: usize) -> Causes {
    causes(&page.page.resources[number].causes)
}

/// Names, milliseconds and causes of all tasks.
fn tasks(page: &HarPage) -> Vec<(&str, u64, Causes)> {
    let tasks = page.page.tasks.iter();
    let of_each = tasks.map(|one| {
        (
            one.id.as_str(),
            one.time.as_nanos() / 1_000_000,
            causes(&one.causes),
        )
    });
    of_each.collect()
}

/// An object of EPLOAD.
fn obj(id: &str, path: &str, when: i32, download: &str, comps: &str) -> String {
    format!(
        r#"{{"id": "{id}", "host": "a.org", "path": "{path}", "when_comp_start": {when},
        "download": {{"id": "{id}_d", {download}}}, "comps": [{comps}]}}"#
    )
}

fn comp(id: &str, kind: &str, ms: f64) -> String {
    format!(r#"{{"id": "{id}", "type": "{kind}", "time": {ms}}}"#)
}

fn dep(a1: &str, a2: &str, time: f64) -> String {
    format!(r#"{{"id": "dep", "a1": "{a1}", "a2": "{a2}", "time": {time}}}"#)
}

fn graph(objs: &[String], deps: &[String], more: &str) -> String {
    format!(
        r#"{{"name": "token=SECRET", "deps": [{}], "objs": [{}] {more}}}"#,
        deps.join(","),
        objs.join(",")
    )
}

/// A parser that a script blocks, which a style sheet blocks; an image.
fn epload(more: &str) -> String {
    let plain = r#""type": "download""#;
    let html = [
        comp("r1_c1", "evalhtml", 50.0),
        comp("r1_c2", "evalhtml", 20.0),
    ]
    .join(",");
    let objs = [
        obj("r1", "/?q=SECRET", 1, plain, &html),
        obj("r2", "/a.css", -1, plain, &comp("r2_c1", "evalcss", 7.0)),
        obj("r3", "/b", -1, plain, &comp("r3_c1", "evaljs", 2.0)),
        obj("r4", "/c.png", -1, plain, ""),
    ];
    let deps = [
        dep("r1_c1", "r2_d", 30.0),
        dep("r1_c1", "r3_d", 40.0),
        dep("r2_c1", "r3_c1", -1.0),
        dep("r3_c1", "r1_c2", -1.0),
        dep("r1_c2", "r4_d", 25.0),
    ];
    graph(
        &objs,
        &deps,
        &format!(r#", "start_activity": "r1_d" {more}"#),
    )
}

#[test]
fn a_graph_of_epload_keeps_its_dependencies() {
    let page = only(&epload(""));
    let found: Vec<_> = page
        .page
        .resources
        .iter()
        .map(|one| (one.url.as_str(), one.kind, one.priority))
        .collect();
    assert_eq!(
        found,
        [
            ("http://a.org/", Kind::Document, Priority::Highest),
            ("http://a.org/a.css", Kind::Stylesheet, Priority::Highest),
            ("http://a.org/b", Kind::Script, Priority::High),
            ("http://a.org/c.png", Kind::Image, Priority::Low),
        ]
    );
    assert_eq!(
        tasks(&page),
        [
            // from the first chunk of the document, cut where it asks for others
            ("task-1.1", 30, vec![(R(0), 0.0, 0)]),
            ("task-1.2", 10, vec![(T(0), 1.0, 0)]),
            ("task-1.3", 10, vec![(T(1), 1.0, 0)]),
            ("task-2", 20, vec![(T(2), 1.0, 0), (T(5), 1.0, 0)]),
            ("task-3", 7, vec![(R(1), 1.0, 0)]),
            ("task-4", 2, vec![(R(2), 1.0, 0), (T(4), 1.0, 0)]),
        ]
    );
    assert_eq!(resource(&page, 0), []);
    assert_eq!(resource(&page, 1), [(T(0), 1.0, 0)]);
    assert_eq!(resource(&page, 2), [(T(1), 1.0, 0)]);
    // 5 ms after the computation ended
    assert_eq!(resource(&page, 3), [(T(3), 1.0, 5000)]);
    assert!(page.page.resources.iter().all(|one| one.blocks_load));
    let said = page.warnings.join("\n");
    assert!(said.contains("4 of 4 resources have no size"), "{said}");
    assert!(said.contains("no time of the load event"), "{said}");
    assert!(said.contains("for the file has none"), "{said}");
    assert!(
        !said.contains("inferred") && !said.contains("dependency"),
        "{said}"
    );
    assert!(!format!("{page:?}").contains("SECRET"));
}

#[test]
fn the_load_event_of_epload_waits_for_what_its_activity_waits_for() {
    let page = only(&epload(r#", "load_activity": "r3_c1""#));
    let blocks: Vec<_> = page
        .page
        .resources
        .iter()
        .map(|one| one.blocks_load)
        .collect();
    assert_eq!(blocks, [true, true, true, false]);
    let blocks: Vec<_> = page.page.tasks.iter().map(|one| one.blocks_load).collect();
    // not the last part of the first computation, nor the second one
    assert_eq!(blocks, [true, true, false, false, true, true]);
    assert!(!page.warnings.join("\n").contains("load event"));
    let number = only(&epload(r#", "load_activity": -1"#));
    assert!(number.page.resources.iter().all(|one| one.blocks_load));
}

#[test]
fn wprof_gives_epload_sizes_and_times() {
    let timed = r#""type": "text/html", "len": 9000, "s_time": 0, "dnsStart": -1, "connectStart": 0, "connectEnd": 30,
        "sslStart": -1, "sslEnd": -1, "sendStart": 30, "sendEnd": 30, "receiveHeadersEnd": 100, "receiveFirst": 70,
        "receivedTime": "300.0""#;
    let script =
        r#""type": "application/javascript", "len": 500, "s_time": 150.5, "receivedTime": "190.5""#;
    let comps = r#"{"id": "c1", "type": "evalhtml", "s_time": 120.0, "e_time": 160.25}"#;
    let objs = [
        obj("r1", "/late", -1, script, ""),
        obj("r0", "/", 1, timed, comps).replace(
            r#""host": "a.org", "path": "/""#,
            r#""url": "https://a.org/?q""#,
        ),
        obj("r2", "/none.png", -1, r#""type": null"#, ""),
    ];
    let deps = [dep("r0_d", "r1_d", 150.0), dep("nothing", "r1_d", -1.0)];
    let page = only(&graph(
        &objs,
        &deps,
        r#", "start_activity": "r0_d", "load_activity": -1"#,
    ));
    let found = page.page.resources.iter();
    let found: Vec<_> = found
        .map(|one| (one.url.as_str(), one.kind, one.body_bytes))
        .collect();
    assert_eq!(
        found,
        [
            // what the load begins with comes first
            ("https://a.org/", Kind::Document, 9000),
            ("http://a.org/none.png", Kind::Image, 0),
            ("http://a.org/late", Kind::Script, 500),
        ]
    );
    // 70 ms less the 30 ms in which the connection opened
    assert_eq!(
        page.page.resources[0].server_time,
        pathcast_path::Span::from_millis(40)
    );
    // 50 of the 200 ms in which the document came
    assert_eq!(resource(&page, 2), [(R(0), 0.25, 0)]);
    assert_eq!(
        page.page.tasks[0].time,
        pathcast_path::Span::from_millis(40) + pathcast_path::Span::from_nanos(250_000)
    );
    let said = page.warnings.join("\n");
    assert!(said.contains("1 of 3 resources have no size"), "{said}");
    assert!(said.contains("1 dependencies were left out"), "{said}");
    // its cause is inferred as that of an archive is
    assert!(said.contains("1 of 3 resources is inferred"), "{said}");
}

#[test]
fn graphs_of_epload_that_cannot_be_used_say_why() {
    let whole = epload("");
    assert!(error(&whole[..whole.len() - 9]).starts_with("is not a graph of EPLOAD: EOF"));
    assert!(error(r#"{"objs": []}"#).contains("no objects"));
    assert!(error(r#"{"objs": 3}"#).starts_with("is not a graph of EPLOAD"));
    assert_eq!(
        error(r#"{"objs": [{}, 7]}"#),
        "entry 1: the request has no URL"
    );
    let looped = whole.replace(
        r#""deps": ["#,
        r#""deps": [{"a1": "r1_c2", "a2": "r2_d", "time": -1}, "#,
    );
    assert!(
        error(&looped).contains("waits for itself"),
        "{}",
        error(&looped)
    );
    let alone = whole.replace(
        r#""deps": ["#,
        r#""deps": [{"a1": "r1_c1", "a2": "r1_c1", "time": 3}, "#,
    );
    assert!(
        error(&alone).contains("waits for itself"),
        "{}",
        error(&alone)
    );
    let root = whole.replace(r#""deps": ["#, r#""deps": [{"a1": "r4_d", "a2": "r1_d"}, "#);
    assert!(
        error(&root).contains("every resource waits for another one"),
        "{}",
        error(&root)
    );
}

#[test]
fn strange_values_of_epload_count_as_missing() {
    let strange = epload(r#", "more": {"a": [[[]]]}"#)
        .replace(r#""time": 7"#, r#""time": -7"#)
        .replace(r#""time": 2}"#, r#""time": 1e308}"#)
        .replace(r#""time": 25"#, r#""time": {"s": 25}"#);
    let page = only(&strange);
    assert_eq!(page.page.tasks[4].time, pathcast_path::Span::ZERO);
    assert_eq!(
        page.page.tasks[5].time,
        pathcast_path::Span::from_millis(3_600_000)
    );
    assert_eq!(resource(&page, 3), [(T(3), 1.0, 0)]);
}

/// An activity of WProfX.
fn activity(id: &str, url: &str, from: f64, to: f64, more: &str) -> String {
    format!(
        r#"{{"activityId": "{id}", "url": "https://a.org/{url}", "startTime": {from}, "endTime": {to} {more}}}"#
    )
}

fn links(all: &[(&str, &str, f64)]) -> String {
    let all = all
        .iter()
        .map(|(a1, a2, time)| format!(r#"{{"time": {time}, "a2": "{a2}", "a1": "{a1}"}}"#));
    all.collect::<Vec<_>>().join(",")
}

const LINKS: [(&str, &str, f64); 6] = [
    ("Networking_0", "Loading_0", 105.0),
    ("Loading_0", "Networking_1", 110.0),
    ("Networking_1", "Scripting_0", -1.0),
    ("Loading_0", "Scripting_0", 180.0),
    ("Scripting_0", "Networking_2", 190.0),
    ("Scripting_0", "Networking_9", -1.0),
];

fn downloads() -> [String; 3] {
    let html = r#", "mimeType": "text/html", "transferSize": 4079, "responseReceivedTime": 85, "statusCode": 200,
        "fromScript": "Null", "id": "31739.1""#;
    let script = r#", "mimeType": "application/x-javascript", "transferSize": 900, "responseReceivedTime": 150"#;
    let image = r#", "mimeType": "image/gif", "responseReceivedTime": 230, "statusCode": 204"#;
    [
        activity("Networking_0", "?q=SECRET", 5.0, 125.0, html),
        activity("Networking_1", "app.js?k=SECRET", 110.0, 160.0, script),
        activity("Networking_2", "beacon", 190.0, 231.0, image),
    ]
}

/// A parser runs a script, which forces a layout.
fn computations() -> [String; 4] {
    [
        activity(
            "Loading_0",
            "?q=SECRET",
            105.0,
            305.0,
            r#", "name": "ParseHTML", "styleSheetUrl": null"#,
        ),
        activity("Scripting_0", "app.js?k=SECRET", 180.0, 280.0, ""),
        activity("Rendering_3", "", 220.0, 250.0, ""),
        activity("Painting_7", "", 310.0, 312.0, ""),
    ]
}

fn wprofx() -> String {
    let [html, script, image] = downloads();
    let [parse, run, layout, paint] = computations();
    format!(
        r#"[{{"objs": [{html}, {parse}], "id": "https://a.org/?q=SECRET"}}, {{"objs": [{script}, {run}], "id": "b"}},
        {{"objs": [{image}], "id": "c"}}, {{"objs": [{layout}], "id": "Rendering"}}, {{"objs": [{paint}], "id": "Painting"}},
        {{"objs": [{}], "id": "Deps"}}, {{"id": "Netlog", "dns": {{}}, "sockets": {{"0x1": {{"bytes_in": 1}}}}}},
        {{"computationTime": 1.5, "criticalPath": ["Networking_0", "Loading_0"]}}]"#,
        links(&LINKS)
    )
}

#[test]
fn a_graph_of_wprofx_keeps_its_dependencies() {
    let page = only(&wprofx());
    let found = page.page.resources.iter();
    let found: Vec<_> = found
        .map(|one| (one.url.as_str(), one.kind, one.body_bytes))
        .collect();
    assert_eq!(
        found,
        [
            ("https://a.org/", Kind::Document, 4079),
            ("https://a.org/app.js", Kind::Script, 900),
            ("https://a.org/beacon", Kind::Image, 0),
        ]
    );
    assert_eq!(
        tasks(&page),
        [
            // 100 of its 200 ms are the script's; cut where the script and the request for it begin
            ("task-1.1", 3, vec![(R(0), 0.5, 0)]),
            ("task-1.2", 35, vec![(T(0), 1.0, 0)]),
            ("task-1.3", 62, vec![(T(1), 1.0, 0)]),
            // 30 ms less for the layout
            ("task-2.1", 7, vec![(R(1), 1.0, 0), (T(1), 1.0, 0)]),
            ("task-2.2", 63, vec![(T(3), 1.0, 0)]),
            // what ended last before it
            ("task-3", 30, vec![(R(1), 1.0, 60_000)]),
        ]
    );
    assert_eq!(resource(&page, 1), [(T(0), 1.0, 0)]);
    assert_eq!(resource(&page, 2), [(T(3), 1.0, 0)]);
    let said = page.warnings.join("\n");
    assert!(said.contains("1 of 3 resources have no size"), "{said}");
    assert!(said.contains("1 dependencies were left out"), "{said}");
    assert!(
        said.contains("1 activities of rendering and painting"),
        "{said}"
    );
    assert!(!format!("{page:?}").contains("SECRET"));
}

#[test]
fn layouts_of_wprofx_wait_for_what_there_is() {
    let [html, ..] = downloads();
    let early = activity("Rendering_0", "", 95.0, 107.0, "");
    let listed = activity("Painting_1", "", 200.0, 212.0, "");
    let link = links(&[("Rendering_0", "Painting_1", -1.0)]);
    let page = only(&format!("[{html}, {listed}, {early}, {link}]"));
    // a quarter of the document had come
    let expected = [
        ("task-1", 12, vec![(R(0), 0.25, 0)]),
        ("task-2", 12, vec![(T(0), 1.0, 0)]),
    ];
    assert_eq!(tasks(&page), expected);
}

#[test]
fn a_moment_of_wprofx_after_the_end_is_a_wait() {
    let late = links(&[("Networking_0", "Loading_0", 130.0)]);
    let page = only(&wprofx().replace(&links(&LINKS[..1]), &late));
    assert_eq!(tasks(&page)[0].2, [(R(0), 1.0, 5000)]);
}

#[test]
fn wprofx_is_read_as_pairs_and_as_an_object() {
    let all: Vec<_> = downloads().into_iter().chain(computations()).collect();
    let name = |one: &str| {
        let id = one.split('"').nth(3).unwrap().to_string();
        (
            format!("\"{id}\""),
            one.replace(&format!(r#""activityId": "{id}", "#), ""),
        )
    };
    let pairs = all
        .iter()
        .map(|one| name(one))
        .map(|(id, rest)| format!("[{id}, {rest}]"));
    let pairs = pairs.collect::<Vec<_>>().join(",");
    let list = format!(
        r#"[{{"id": "a", "objs": [{pairs}]}}, {{"id": "Deps", "objs": [{}]}}]"#,
        links(&LINKS)
    );
    assert_eq!(only(&list).page, only(&wprofx()).page);
    let keys = all
        .iter()
        .map(|one| name(one))
        .map(|(id, rest)| format!("{id}: {rest}"));
    let keys = keys.collect::<Vec<_>>().join(",");
    let object = format!(r#"{{{keys}, "deps": [{}]}}"#, links(&LINKS));
    assert_eq!(only(&object).page, only(&wprofx()).page);
    let flat = format!("[{}, {}]", all.join(","), links(&LINKS));
    assert_eq!(only(&flat).page, only(&wprofx()).page);
}

#[test]
fn graphs_of_wprofx_that_cannot_be_used_say_why() {
    let whole = wprofx();
    assert!(error(&whole[..whole.len() - 40]).starts_with("is not a graph of WProfX: EOF"));
    assert!(error(r#"[{"objs": [], "id": "Deps"}]"#).contains("no downloads"));
    let looped = whole.replace(
        &links(&LINKS[..1]),
        &links(&[("Scripting_0", "Loading_0", -1.0)]),
    );
    assert!(
        error(&looped).contains("waits for itself"),
        "{}",
        error(&looped)
    );
    let no_url = format!(
        "[{}]",
        activity("Networking_0", "", 0.0, 1.0, "").replace("https://a.org/", "")
    );
    assert_eq!(error(&no_url), "entry 1: the request has no URL");
    let deep = format!(r#"[{{"objs": {}"#, "[".repeat(100_000));
    assert!(error(&deep).contains("recursion limit"), "{}", error(&deep));
}

#[test]
fn strange_values_of_wprofx_count_as_missing() {
    let strange = wprofx()
        .replace(r#""endTime": 280"#, r#""endTime": -280"#)
        .replace(r#""transferSize": 900"#, r#""transferSize": [900]"#)
        .replace(r#""startTime": 190"#, r#""startTime": 1e300"#)
        .replace(r#""time": 105"#, r#""time": 1e300"#);
    let page = only(&strange);
    assert_eq!(page.page.resources[1].body_bytes, 0);
    assert_eq!(
        page.page.tasks[0].causes[0].wait,
        pathcast_path::Span::from_millis(3_600_000)
    );
}

#[test]
fn many_activities_and_dependencies_take_no_long_time() {
    let mut all = vec![activity(
        "Networking_0",
        "",
        0.0,
        1.0,
        r#", "transferSize": 1"#,
    )];
    let mut deps = Vec::new();
    for number in 0..9999 {
        let end = f64::from(20_000 - number);
        all.push(activity(
            &format!("Scripting_{number}"),
            "",
            f64::from(number),
            end,
            "",
        ));
        all.push(activity(
            &format!("Networking_{}", number + 1),
            "x",
            f64::from(number),
            end,
            "",
        ));
        deps.push((
            "Networking_0".to_string(),
            format!("Scripting_{number}"),
            -1.0,
        ));
        deps.push((
            "Scripting_7".to_string(),
            format!("Networking_{}", number + 1),
            f64::from(number),
        ));
        deps.push((
            format!("Scripting_{number}"),
            "Networking_9999".to_string(),
            -1.0,
        ));
    }
    let deps: Vec<_> = deps
        .iter()
        .map(|(a1, a2, time)| (a1.as_str(), a2.as_str(), *time))
        .collect();
    let page = only(&format!("[{}, {}]", all.join(","), links(&deps)));
    assert_eq!(page.page.resources.len(), 10_000);
    assert!(page.page.tasks.len() >= 9999);
}
