//! From the entries of an archive to the graph of a page.

use std::collections::HashMap;

use pathcast_path::Span;

use super::coalesced::{Answered, coalesced};
use super::date::nanos;
use super::raw::{Archive, Entry, RawPage};
use super::{HarError, HarPage};
use crate::file::{HEADER_BYTES, REQUEST_BYTES, clean_url};
use crate::page::{Cause, Kind, Node, Page, Priority, Resource, origin_of};

/// A browser that asks so soon after something ended did so because of it.
pub const SOON_S: f64 = 0.003;
/// The longest time that is believed.
const LONGEST_S: f64 = 3600.0;
/// The most bytes of a header that are believed.
const MOST_HEADER_BYTES: f64 = 1e6;

/// An entry that counts, with its times in seconds after the page began.
struct Fetch<'a> {
    /// In the archive, from 1.
    number: usize,
    entry: &'a Entry,
    url: String,
    asked_s: f64,
    /// When the first byte of the response came, and the last.
    first_s: f64,
    last_s: f64,
}

/// A page, and when its resources came in the recording.
pub struct Recorded {
    pub page: HarPage,
    /// Of each resource.
    pub times: Vec<Times>,
}

/// When a resource was asked for and came, in seconds after the first was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Its entry in the archive, from 1.
    pub entry: usize,
    pub asked_s: f64,
    /// When the first byte of the response came, and the last.
    pub first_s: f64,
    pub last_s: f64,
}

impl Times {
    /// The share of the body that had come at a moment, as exact as times in milliseconds are.
    pub fn share_at(&self, at_s: f64) -> f64 {
        let took_s = self.last_s - self.first_s;
        if at_s >= self.last_s || took_s <= 0.0 {
            return 1.0;
        }
        let share = ((at_s - self.first_s) / took_s).clamp(0.0, 1.0);
        (share * 1000.0).round() / 1000.0
    }
}

impl Fetch<'_> {
    fn answered(&self) -> Answered<'_> {
        Answered {
            origin: origin_of(&self.url),
            protocol: self.entry.response.0.http_version.get(),
            connection: self.entry.connection.get(),
        }
    }
}

/// All pages of an archive that have something.
pub fn pages(archive: &Archive) -> Result<Vec<HarPage>, HarError> {
    let found = recorded(archive)?;
    Ok(found.into_iter().map(|one| one.page).collect())
}

/// As [`pages`], with the times of the recording.
pub fn recorded(archive: &Archive) -> Result<Vec<Recorded>, HarError> {
    let whole = RawPage::default();
    let listed: Vec<Option<&RawPage>> = match archive.pages.len() {
        0 => vec![None],
        _ => archive.pages.iter().map(Some).collect(),
    };
    let alone = listed.len() == 1;
    let mut found = Vec::new();
    let mut trouble = None;
    for raw in listed {
        let belongs = |entry: &Entry| {
            let id = raw.and_then(|raw| raw.id.get());
            // what names no page belongs to the only one
            id == entry.pageref.get() || (alone && (raw.is_none() || entry.pageref.get().is_none()))
        };
        let entries = (1..)
            .zip(&archive.entries)
            .filter(|(_, entry)| belongs(entry));
        match page(raw.unwrap_or(&whole), entries, archive) {
            Ok(page) => found.push(page),
            Err(error) => drop(trouble.get_or_insert(error)),
        }
    }
    match (found.is_empty(), trouble) {
        (true, Some(error)) => Err(error),
        (true, None) => Err(HarError {
            entry: None,
            message: "the archive has no page with an entry".into(),
        }),
        (false, _) => Ok(found),
    }
}

fn page<'a>(
    raw: &RawPage,
    entries: impl Iterator<Item = (usize, &'a Entry)>,
    archive: &Archive,
) -> Result<Recorded, HarError> {
    let origin_ns = raw.started_date_time.get().and_then(nanos);
    let (mut fetches, skipped, why) = fetches(entries, origin_ns);
    if fetches.is_empty() {
        return Err(why.unwrap_or_else(|| HarError {
            entry: None,
            message: "no entry of the page was transferred".into(),
        }));
    }
    // a stable sort: entries of the same moment keep their order
    fetches.sort_by(|a, b| a.asked_s.total_cmp(&b.asked_s));
    let begin_s = fetches[0].asked_s;
    for fetch in &mut fetches {
        fetch.asked_s -= begin_s;
        fetch.first_s -= begin_s;
        fetch.last_s -= begin_s;
    }
    // without a date, the page is taken to begin with its first entry
    let started_s = origin_ns.map_or(begin_s, |_| 0.0);
    let on_load_s = raw.page_timings.0.on_load.get().filter(|ms| *ms > 0.0);
    let on_load_s = on_load_s.map(|ms| ms / 1e3 + started_s - begin_s);

    let round_trips = round_trips(&fetches);
    let (mut uncompressed, mut without_headers) = (0, 0);
    let mut causes = Causes::new(&fetches);
    let mut resources = Vec::new();
    for (number, fetch) in fetches.iter().enumerate() {
        let (body_bytes, is_known) = body_bytes(fetch.entry);
        uncompressed += usize::from(!is_known);
        let request = &fetch.entry.request.0;
        without_headers +=
            usize::from(request.headers.0.is_empty() && request.headers_size.get().is_none());
        let kind = kind(fetch.entry, &fetch.url, number == 0);
        let rtt_s = round_trips
            .get(origin_of(&fetch.url))
            .copied()
            .unwrap_or(0.0);
        let wait_s = fetch.entry.timings.0.wait.positive() / 1e3 - rtt_s;
        resources.push(Resource {
            id: fetch.number.to_string(),
            url: fetch.url.clone(),
            kind,
            priority: priority(fetch.entry).unwrap_or_else(|| kind.priority()),
            request_bytes: request_bytes(fetch.entry),
            header_bytes: header_bytes(fetch.entry),
            body_bytes,
            server_time: span(wait_s),
            causes: causes.of(number),
            blocks_load: on_load_s.is_none_or(|load_s| fetch.asked_s < load_s),
        });
    }
    // the load event waits for the page itself
    resources[0].blocks_load = true;

    let lack = Lack {
        resources: resources.len(),
        skipped,
        uncompressed,
        inferred: causes.inferred,
        without_headers,
        without_load: on_load_s.is_none() && !archive.knows_load,
    };
    let warnings = lack.warnings(archive);
    let name = clean_url(raw.title.get().unwrap_or_default()).unwrap_or_else(|| {
        let url = &fetches[0].url;
        url.split_once("://")
            .map_or(url.as_str(), |(_, rest)| rest)
            .trim_end_matches('/')
            .to_string()
    });
    let page = Page {
        name,
        coalesced: coalesced(fetches.iter().map(Fetch::answered)),
        resources,
        tasks: Vec::new(),
    };
    page.check().map_err(|error| HarError {
        entry: None,
        message: error.message,
    })?;
    let times = fetches.iter().map(|fetch| Times {
        entry: fetch.number,
        asked_s: fetch.asked_s,
        first_s: fetch.first_s,
        last_s: fetch.last_s,
    });
    Ok(Recorded {
        times: times.collect(),
        page: HarPage {
            page,
            on_load_ms: on_load_s.map(|load_s| load_s * 1e3),
            warnings,
        },
    })
}

/// What an archive lacks of a page, as numbers of entries.
struct Lack {
    resources: usize,
    skipped: usize,
    uncompressed: usize,
    inferred: usize,
    without_headers: usize,
    without_load: bool,
}

impl Lack {
    fn warnings(&self, archive: &Archive) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(cut) = &archive.cut {
            let count = archive.entries.len();
            let entries = if count == 1 { "entry" } else { "entries" };
            warnings.push(format!(
                "the recording is cut off or damaged after {count} {entries}: {cut}"
            ));
        }
        if archive.more > 0 {
            warnings.push(format!(
                "{} entries were left out, for there are too many",
                archive.more
            ));
        }
        if self.skipped > 0 {
            warnings.push(format!(
                "{} {} left out: they were not transferred, were answered from a cache, or have no valid URL or time",
                self.skipped,
                if self.skipped == 1 { "entry was" } else { "entries were" }
            ));
        }
        if self.uncompressed > 0 {
            warnings.push(format!(
                "the sizes of {} of {} resources are those after decompression, for the recording has no others",
                self.uncompressed,
                self.resources
            ));
        }
        if self.inferred > 0 {
            warnings.push(format!(
                "what made the browser ask for {} of {} resources is inferred from their Referer, times and types, for the \
                 recording does not say it",
                self.inferred,
                self.resources
            ));
        }
        if self.without_load {
            warnings.push(
                "the recording has no time of the load event: it is taken to wait for all resources"
                    .into(),
            );
        }
        if self.without_headers > 0 {
            warnings.push(format!(
                "{} requests have no size: {REQUEST_BYTES} bytes are assumed",
                self.without_headers
            ));
        }
        warnings
    }
}

/// The entries that were transferred, with times since `origin_ns`, or since the first of them if there is none; how many were not, and why the first was not.
fn fetches<'a>(
    entries: impl Iterator<Item = (usize, &'a Entry)>,
    mut origin_ns: Option<i64>,
) -> (Vec<Fetch<'a>>, usize, Option<HarError>) {
    let (mut kept, mut skipped, mut why) = (Vec::new(), 0, None);
    for (number, entry) in entries {
        match fetch(number, entry, &mut origin_ns) {
            Ok(fetch) => kept.push(fetch),
            Err(message) => {
                skipped += 1;
                why.get_or_insert(HarError {
                    entry: Some(number),
                    message,
                });
            }
        }
    }
    (kept, skipped, why)
}

fn fetch<'a>(
    number: usize,
    entry: &'a Entry,
    origin_ns: &mut Option<i64>,
) -> Result<Fetch<'a>, String> {
    let url = entry.request.0.url.get().ok_or("the request has no URL")?;
    let url = clean_url(url).filter(|url| url.starts_with("http"));
    let url = url.ok_or("the URL of the request is not one of HTTP")?;
    let began = entry.started_date_time.get().unwrap_or_default();
    let asked_ns =
        nanos(began).ok_or("startedDateTime is not a date such as 2026-01-31T12:00:00.000Z")?;
    let since_ns = asked_ns.saturating_sub(*origin_ns.get_or_insert(asked_ns));
    let asked_s = since_ns as f64 / 1e9;
    let status = entry.response.0.status.get().unwrap_or(0.0);
    if status < 100.0 {
        return Err("the request was not answered".into());
    }
    if entry.from_cache.get().is_some() || status == 304.0 && body_bytes(entry).0 == 0 {
        return Err("the response is from a cache".into());
    }
    let timings = &entry.timings.0;
    let before = [
        timings.blocked,
        timings.dns,
        timings.connect,
        timings.send,
        timings.wait,
    ];
    let before_ms: f64 = before.iter().map(|part| part.positive()).sum();
    let took_s = (entry.time.positive() / 1e3).min(LONGEST_S);
    let first_s = asked_s + (before_ms / 1e3).min(LONGEST_S);
    let last_s =
        (first_s + (timings.receive.positive() / 1e3).min(LONGEST_S)).max(asked_s + took_s);
    Ok(Fetch {
        number,
        entry,
        url,
        asked_s,
        first_s: first_s.min(last_s),
        last_s,
    })
}

/// The round trip to each origin in the recording, in seconds: how long a connection took to open, or the shortest
/// wait for a response.
fn round_trips<'a>(fetches: &'a [Fetch<'_>]) -> HashMap<&'a str, f64> {
    let mut found: HashMap<&str, f64> = HashMap::new();
    for fetch in fetches {
        let timings = &fetch.entry.timings.0;
        // the time of TLS is part of that of the connection
        let opens_ms = timings.connect.positive() - timings.ssl.positive();
        let waits_ms = timings.wait.positive();
        let least_ms = match opens_ms > 0.0 {
            true => opens_ms.min(waits_ms),
            false => waits_ms,
        };
        let rtt_s = found.entry(origin_of(&fetch.url)).or_insert(f64::INFINITY);
        *rtt_s = rtt_s.min(least_ms / 1e3);
    }
    found
}

/// A time of a recording; what is less than nothing, or longer than is believed, is cut.
pub fn span(seconds: f64) -> Span {
    // whole microseconds: archives have no more
    Span::from_nanos((seconds.clamp(0.0, LONGEST_S) * 1e6).round() as u64 * 1000)
}

fn size(bytes: f64) -> u64 {
    bytes.clamp(0.0, Page::MAX_BYTES as f64) as u64
}

/// Bytes of the body as transferred, and whether that is what the archive says.
fn body_bytes(entry: &Entry) -> (u64, bool) {
    let response = &entry.response.0;
    let body = response.body_size.positive();
    if body > 0.0 {
        return (size(body), true);
    }
    let transferred = response.transfer_size.positive();
    if transferred > 0.0 {
        return (size(transferred - response.headers_size.positive()), true);
    }
    let content = response.content.0.size.positive();
    (size(content), content == 0.0)
}

fn request_bytes(entry: &Entry) -> u64 {
    let request = &entry.request.0;
    let headers = match request.headers_size.positive() {
        known if known > 0.0 => known,
        _ if request.headers.0.is_empty() => REQUEST_BYTES as f64,
        _ => {
            written_headers(&request.headers.0)
                + 20.0
                + request.url.get().unwrap_or_default().len() as f64
        }
    };
    size(headers.min(MOST_HEADER_BYTES) + request.body_size.positive()).max(1)
}

fn header_bytes(entry: &Entry) -> u64 {
    let response = &entry.response.0;
    let headers = match response.headers_size.positive() {
        known if known > 0.0 => known,
        _ if response.headers.0.is_empty() => HEADER_BYTES as f64,
        _ => written_headers(&response.headers.0) + 20.0,
    };
    size(headers.min(MOST_HEADER_BYTES)).max(1)
}

/// Bytes of headers as HTTP/1.1 writes them.
fn written_headers(headers: &[super::raw::Header]) -> f64 {
    let length = |text: Option<&str>| text.map_or(0, str::len);
    let lines = headers
        .iter()
        .map(|one| length(one.name.get()) + length(one.value.get()) + 4);
    lines.sum::<usize>() as f64
}

const IMAGES: [&str; 7] = [".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".ico"];

fn kind(entry: &Entry, url: &str, is_first: bool) -> Kind {
    let said = entry.resource_type.get().unwrap_or_default().to_lowercase();
    let mime = entry
        .response
        .0
        .content
        .0
        .mime_type
        .get()
        .unwrap_or_default()
        .to_lowercase();
    let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| url.ends_with(suffix));
    match said.as_str() {
        "document" => return Kind::Document,
        "stylesheet" => return Kind::Stylesheet,
        "script" => return Kind::Script,
        "image" => return Kind::Image,
        "font" => return Kind::Font,
        "xhr" | "fetch" => return Kind::Fetch,
        "media" => return Kind::Media,
        _ => {}
    }
    if mime.contains("css") || ends(&[".css"]) {
        Kind::Stylesheet
    } else if mime.contains("javascript") || mime.contains("ecmascript") || ends(&[".js", ".mjs"]) {
        Kind::Script
    } else if mime.starts_with("image/") || mime.is_empty() && ends(&IMAGES) {
        Kind::Image
    } else if mime.contains("font") || ends(&[".woff", ".woff2", ".ttf", ".otf"]) {
        Kind::Font
    } else if mime.starts_with("video/") || mime.starts_with("audio/") {
        Kind::Media
    } else if mime.contains("html") || is_first {
        Kind::Document
    } else if mime.contains("json") || mime.contains("xml") {
        Kind::Fetch
    } else {
        Kind::Other
    }
}

fn priority(entry: &Entry) -> Option<Priority> {
    Some(match entry.priority.get()?.to_lowercase().as_str() {
        "veryhigh" | "highest" => Priority::Highest,
        "high" => Priority::High,
        "medium" => Priority::Medium,
        "low" => Priority::Low,
        "verylow" | "lowest" => Priority::Lowest,
        _ => return None,
    })
}

/// Finds what made the browser ask for each fetch.
struct Causes<'a> {
    fetches: &'a [Fetch<'a>],
    /// The fetches of each URL, in the order of time.
    by_url: HashMap<&'a str, Vec<usize>>,
    /// Which of them hold back the parser: scripts and styles.
    blocks: Vec<bool>,
    /// Those that a redirection leads to.
    redirected: HashMap<usize, usize>,
    /// Those whose archive names no initiator.
    inferred: usize,
}

impl<'a> Causes<'a> {
    fn new(fetches: &'a [Fetch<'a>]) -> Self {
        let mut by_url: HashMap<&str, Vec<usize>> = HashMap::new();
        for (number, fetch) in fetches.iter().enumerate() {
            by_url.entry(&fetch.url).or_default().push(number);
        }
        let mut redirected = HashMap::new();
        for (number, fetch) in fetches.iter().enumerate() {
            let target = fetch.entry.response.0.redirect_url.get();
            let target = target.and_then(clean_url);
            let next = target.and_then(|url| {
                let later = by_url.get(url.as_str())?;
                later
                    .iter()
                    .copied()
                    .find(|&other| other > number && !redirected.contains_key(&other))
            });
            if let Some(next) = next {
                redirected.insert(next, number);
            }
        }
        let blocks = fetches.iter().map(|fetch| {
            let kind = kind(fetch.entry, &fetch.url, false);
            matches!(kind, Kind::Script | Kind::Stylesheet)
        });
        Self {
            fetches,
            blocks: blocks.collect(),
            by_url,
            redirected,
            inferred: 0,
        }
    }

    /// The fetch of `url` that had begun to arrive last before `number` was asked for.
    fn source(&self, url: &str, number: usize) -> Option<usize> {
        let asked_s = self.fetches[number].asked_s;
        let candidates = self.by_url.get(clean_url(url)?.as_str())?;
        let mut earlier = candidates
            .iter()
            .rev()
            .copied()
            .filter(|&other| other < number);
        earlier.find(|&other| self.fetches[other].first_s <= asked_s + SOON_S)
    }

    fn of(&mut self, number: usize) -> Vec<Cause> {
        if number == 0 || self.fetches[number].entry.has_causes {
            return Vec::new();
        }
        if let Some(&from) = self.redirected.get(&number) {
            return vec![self.after(from, number)];
        }
        let entry = self.fetches[number].entry;
        let named = entry.initiator.0.source();
        if let Some(from) = named.and_then(|url| self.source(url, number)) {
            return vec![self.after(from, number)];
        }
        self.inferred += 1;
        let headers = entry.request.0.headers.0.iter();
        let mut referring = headers.filter(|one| {
            one.name
                .get()
                .is_some_and(|name| name.eq_ignore_ascii_case("referer"))
        });
        let referer = referring.find_map(|one| one.value.get());
        let from = referer
            .and_then(|url| self.source(url, number))
            .unwrap_or(0);
        vec![self.after(from, number)]
    }

    /// That `number` was asked for because of `from`: in the course of it, or by what was blocking the browser then.
    fn after(&self, from: usize, number: usize) -> Cause {
        let (parent, asked_s) = (&self.fetches[from], self.fetches[number].asked_s);
        if asked_s < parent.last_s {
            let took_s = parent.last_s - parent.first_s;
            let at = match took_s > 0.0 {
                true => ((asked_s - parent.first_s) / took_s).clamp(0.0, 1.0),
                false => 1.0,
            };
            // a thousandth is as exact as times in milliseconds are
            return cause(from, (at * 1000.0).round() / 1000.0, 0.0);
        }
        if asked_s - parent.last_s > SOON_S {
            // the last of those that hold back the parser to come is what it waited for
            let between = parent.last_s..=asked_s;
            let earlier = self.fetches[..number].iter().enumerate();
            let last = earlier
                .filter(|(other, fetch)| {
                    *other != from && self.blocks[*other] && between.contains(&fetch.last_s)
                })
                .max_by(|(_, a), (_, b)| a.last_s.total_cmp(&b.last_s));
            if let Some((other, fetch)) = last {
                return cause(other, 1.0, asked_s - fetch.last_s);
            }
        }
        cause(from, 1.0, asked_s - parent.last_s)
    }
}

fn cause(of: usize, at: f64, wait_s: f64) -> Cause {
    Cause {
        of: Node::Resource(of),
        at,
        wait: span(wait_s),
    }
}
