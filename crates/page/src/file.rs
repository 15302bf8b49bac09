//! The text form of a page. `docs/reference/page-file.md` is the reference.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use pathcast_path::reader::{Field, Read, SIZE, TIME, Table, Trouble, document, quoted};
use pathcast_path::{PathError, Size, Span};
use toml::de::DeTable;

use crate::formats;
use crate::har::HarPage;
use crate::page::{Cause, Kind, Node, Page, Resource, Task, origin_of};

const RESOURCE_KEYS: [&str; 10] = [
    "id",
    "url",
    "type",
    "priority",
    "request",
    "header",
    "size",
    "server_time",
    "after",
    "blocks_load",
];
const TASK_KEYS: [&str; 4] = ["id", "time", "after", "blocks_load"];
/// Of a request, and of the header of a response, where nothing is known of them.
pub const REQUEST_BYTES: u64 = 450;
pub const HEADER_BYTES: u64 = 300;

impl Page {
    /// Reads a page's text; `file` names it in errors.
    ///
    /// # Errors
    /// A [`PathError`] with line and column if the text is no TOML, a key is missing, unknown or of the wrong type, or
    /// a resource waits for itself.
    pub fn parse(text: &str, file: &str) -> Result<Self, PathError> {
        document(text, file, |root| read_table(root, 0))
    }

    /// The page of the root table of a file, or of a table within one that begins at byte `at`.
    ///
    /// # Errors
    /// As [`Page::parse`].
    pub fn read(table: &DeTable<'_>, at: usize) -> Read<Self> {
        read_table(table, at)
    }

    /// The page as TOML; [`Page::parse`] reads it back.
    pub fn to_toml(&self) -> String {
        let mut text = format!("name = {}\n", quoted(&self.name));
        if !self.coalesced.is_empty() {
            let _ = writeln!(text, "coalesced = {}", self.coalesced_to_toml());
        }
        for keys in self.resources.iter().map(|one| self.resource_keys(one)) {
            let _ = writeln!(text, "\n[[resources]]\n{}", keys.join("\n"));
        }
        for keys in self.tasks.iter().map(|one| self.task_keys(one)) {
            let _ = writeln!(text, "\n[[tasks]]\n{}", keys.join("\n"));
        }
        text
    }

    /// The page as a table of TOML in one line.
    pub fn to_inline_toml(&self) -> String {
        let table = |keys: Vec<String>| format!("{{ {} }}", keys.join(", "));
        let resources = self
            .resources
            .iter()
            .map(|one| table(self.resource_keys(one)));
        let tasks = self.tasks.iter().map(|one| table(self.task_keys(one)));
        let coalesced = match self.coalesced.is_empty() {
            true => String::new(),
            false => format!("coalesced = {}, ", self.coalesced_to_toml()),
        };
        format!(
            "{{ name = {}, {coalesced}resources = [{}], tasks = [{}] }}",
            quoted(&self.name),
            resources.collect::<Vec<_>>().join(", "),
            tasks.collect::<Vec<_>>().join(", ")
        )
    }

    fn coalesced_to_toml(&self) -> String {
        let group = |origins: &Vec<String>| {
            let quoted: Vec<_> = origins.iter().map(|one| quoted(one)).collect();
            format!("[{}]", quoted.join(", "))
        };
        let groups: Vec<_> = self.coalesced.iter().map(group).collect();
        format!("[{}]", groups.join(", "))
    }

    fn resource_keys(&self, resource: &Resource) -> Vec<String> {
        let mut keys = vec![
            format!("id = {}", quoted(&resource.id)),
            format!("url = {}", quoted(&resource.url)),
            format!("type = \"{}\"", resource.kind.name()),
            format!("priority = \"{}\"", resource.priority.name()),
            format!("request = \"{} B\"", resource.request_bytes),
            format!("header = \"{} B\"", resource.header_bytes),
            format!("size = \"{} B\"", resource.body_bytes),
            format!("server_time = \"{}\"", resource.server_time),
        ];
        self.add_causes(&mut keys, &resource.causes, resource.blocks_load);
        keys
    }

    fn task_keys(&self, task: &Task) -> Vec<String> {
        let mut keys = vec![
            format!("id = {}", quoted(&task.id)),
            format!("time = \"{}\"", task.time),
        ];
        self.add_causes(&mut keys, &task.causes, task.blocks_load);
        keys
    }

    fn add_causes(&self, keys: &mut Vec<String>, causes: &[Cause], blocks_load: bool) {
        let causes = causes.iter().map(|cause| {
            let of = match cause.of {
                Node::Resource(number) => &self.resources[number].id,
                Node::Task(number) => &self.tasks[number].id,
            };
            let (of, at, wait) = (quoted(of), cause.at, cause.wait);
            match (at < 1.0, wait > Span::ZERO) {
                (false, false) => of,
                (true, false) => format!("{{ of = {of}, at = {at} }}"),
                (false, true) => format!("{{ of = {of}, wait = \"{wait}\" }}"),
                (true, true) => format!("{{ of = {of}, at = {at}, wait = \"{wait}\" }}"),
            }
        });
        let causes: Vec<_> = causes.collect();
        keys.push(format!("after = [{}]", causes.join(", ")));
        if !blocks_load {
            keys.push("blocks_load = false".into());
        }
    }
}

/// Reads the pages of a file, whether it is a page file, which has one, or a recording; `file` names it in errors.
///
/// A recording is in JSON: an HTTP archive, a log of the DevTools protocol, a Chrome trace, or a dependency graph of
/// EPLOAD or WProfX. Its first keys say which.
///
/// # Errors
/// A [`PathError`] if it is none of them, or what it says cannot be; with line and column, or the number of the entry
/// or event.
pub fn read(content: &[u8], file: &str) -> Result<Vec<HarPage>, PathError> {
    let wrong = |message: String| PathError {
        file: file.to_string(),
        place: None,
        message,
    };
    if formats::is_one(content) {
        return formats::read(content).map_err(|error| wrong(error.to_string()));
    }
    let text = std::str::from_utf8(content)
        .map_err(|_| wrong("is neither a recording in JSON nor a page file in TOML".into()))?;
    Ok(vec![HarPage {
        page: Page::parse(text, file)?,
        on_load_ms: None,
        warnings: Vec::new(),
    }])
}

fn read_table(root: &DeTable<'_>, at: usize) -> Read<Page> {
    let root = Table::new(root, at, &["name", "coalesced", "resources", "tasks"])?;
    let name = root.or("name", String::new(), |field| {
        Ok(field.text("text")?.into())
    })?;
    let field = root.need("resources")?;
    let tables: Vec<_> = field.list("tables, each under [[resources]]")?.collect();
    let rows = tables
        .iter()
        .map(|item| item.table("a table", &RESOURCE_KEYS));
    let rows: Vec<_> = rows.collect::<Read<_>>()?;
    let task_tables: Vec<_> = match root.get("tasks") {
        None => Vec::new(),
        Some(field) => field.list("tables, each under [[tasks]]")?.collect(),
    };
    let task_rows = task_tables
        .iter()
        .map(|item| item.table("a table", &TASK_KEYS));
    let task_rows: Vec<_> = task_rows.collect::<Read<_>>()?;

    let mut names = HashMap::new();
    let mut ids = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let field = match row.get("id") {
            Some(id) => id,
            None => row.need("url")?,
        };
        ids.push(note(&mut names, field, Node::Resource(number))?);
    }
    let mut task_ids = Vec::new();
    for (number, row) in task_rows.iter().enumerate() {
        task_ids.push(note(&mut names, row.need("id")?, Node::Task(number))?);
    }

    let mut resources = Vec::new();
    for ((row, id), number) in rows.iter().zip(ids).zip(0..) {
        resources.push(resource(*row, id, number, &names)?);
    }
    let mut tasks = Vec::new();
    for (row, id) in task_rows.iter().zip(task_ids) {
        let causes = match row.get("after") {
            None => vec![whole(Node::Resource(0))],
            Some(field) => causes(field, &names)?,
        };
        tasks.push(Task {
            id,
            time: row.need("time")?.quantity(TIME)?,
            causes,
            blocks_load: row.or("blocks_load", true, |field| field.boolean())?,
        });
    }
    let coalesced = match root.get("coalesced") {
        None => Vec::new(),
        Some(field) => coalesced(field, &resources)?,
    };
    let page = Page {
        name,
        resources,
        tasks,
        coalesced,
    };
    page.check().map_err(|error| {
        let of = match error.node {
            None => None,
            Some(Node::Resource(number)) => tables.get(number),
            Some(Node::Task(number)) => task_tables.get(number),
        };
        Trouble {
            at: of.unwrap_or(&field).at(),
            message: error.message,
        }
    })?;
    Ok(page)
}

/// Groups of origins, each of some resource.
fn coalesced(field: Field<'_, '_>, resources: &[Resource]) -> Read<Vec<Vec<String>>> {
    let known: HashSet<&str> = resources.iter().map(Resource::origin).collect();
    let mut seen = HashSet::new();
    let mut groups = Vec::new();
    for group in field.list("lists of origins")? {
        let mut origins = Vec::new();
        for item in group.list("a list of origins")? {
            let text = item.text("an origin such as \"https://example.org\"")?;
            let origin = clean_url(text).map(|url| origin_of(&url).to_string());
            let Some(origin) = origin.filter(|one| known.contains(one.as_str())) else {
                return item.wrong(format_args!("got {text:?}, which no resource comes from"));
            };
            if !seen.insert(origin.clone()) {
                return item.wrong(format_args!("got {origin:?} twice"));
            }
            origins.push(origin);
        }
        groups.push(origins);
    }
    Ok(groups)
}

/// Notes the name of a node, which must be its alone.
fn note(names: &mut HashMap<String, Node>, field: Field<'_, '_>, node: Node) -> Read<String> {
    let text = field.text("text")?;
    let id = match field.key() {
        "url" => clean_url(text).unwrap_or_default(),
        _ => text.to_string(),
    };
    if names.insert(id.clone(), node).is_some() {
        return field.wrong(format_args!(
            "got {id:?} twice; give each an `id` of its own"
        ));
    }
    Ok(id)
}

fn resource(
    row: Table<'_, '_>,
    id: String,
    number: usize,
    names: &HashMap<String, Node>,
) -> Read<Resource> {
    let field = row.need("url")?;
    let url = match clean_url(field.text("a URL")?) {
        Some(url) => url,
        None => return field.wrong("expected a URL such as \"https://example.org/logo.png\""),
    };
    let kind = match row.get("type") {
        None if number == 0 => Kind::Document,
        None => Kind::Other,
        Some(field) => field.parsed("text")?,
    };
    let priority = row.or("priority", kind.priority(), |field| field.parsed("text"))?;
    let causes = match row.get("after") {
        None if number == 0 => Vec::new(),
        None => vec![whole(Node::Resource(0))],
        Some(field) => causes(field, names)?,
    };
    Ok(Resource {
        id,
        url,
        kind,
        priority,
        request_bytes: row.or("request", REQUEST_BYTES, bytes)?.max(1),
        header_bytes: row.or("header", HEADER_BYTES, bytes)?.max(1),
        body_bytes: bytes(row.need("size")?)?,
        server_time: row.or("server_time", Span::ZERO, |field| field.quantity(TIME))?,
        causes,
        blocks_load: row.or("blocks_load", true, |field| field.boolean())?,
    })
}

const fn whole(of: Node) -> Cause {
    Cause {
        of,
        at: 1.0,
        wait: Span::ZERO,
    }
}

/// A size, which may be none.
fn bytes(field: Field<'_, '_>) -> Read<u64> {
    match field.text(SIZE)? {
        "0 B" => Ok(0),
        _ => Ok(field.quantity::<Size>(SIZE)?.as_bytes()),
    }
}

fn causes(field: Field<'_, '_>, names: &HashMap<String, Node>) -> Read<Vec<Cause>> {
    match field.list("") {
        Ok(items) => items.map(|item| cause(item, names)).collect(),
        Err(_) => Ok(vec![cause(field, names)?]),
    }
}

fn cause(field: Field<'_, '_>, names: &HashMap<String, Node>) -> Read<Cause> {
    let (of, at, wait) = if field.is_table() {
        let table = field.table("a table", &["of", "at", "wait"])?;
        let at = table.or("at", 1.0, |field| Ok(field.probability()?.value()))?;
        let wait = table.or("wait", Span::ZERO, |field| field.quantity(TIME))?;
        (table.need("of")?, at, wait)
    } else {
        (field, 1.0, Span::ZERO)
    };
    let id = of.text("an id, or a table with `of`")?;
    let by_url = || names.get(clean_url(id)?.as_str());
    match names.get(id).or_else(by_url) {
        Some(&of) => Ok(Cause { of, at, wait }),
        None => of.wrong(format_args!(
            "got {id:?}, which no resource or task has as its id"
        )),
    }
}

/// Scheme, host and path of a URL, without what may be secret: user, query and fragment.
pub fn clean_url(url: &str) -> Option<String> {
    let url = &url[..url.find(['?', '#']).unwrap_or(url.len())];
    let (scheme, rest) = url.split_once("://")?;
    if scheme.is_empty() || !scheme.bytes().all(|one| one.is_ascii_alphanumeric()) {
        return None;
    }
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    if host.is_empty()
        || url
            .chars()
            .any(|one| one.is_control() || one.is_whitespace())
    {
        return None;
    }
    let path = if path.is_empty() { "/" } else { path };
    Some(format!(
        "{}://{}{path}",
        scheme.to_lowercase(),
        host.to_lowercase()
    ))
}
