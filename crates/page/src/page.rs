//! The graph of a page.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use pathcast_path::Span;
use pathcast_path::reader::by_name;

use crate::protocol::Protocol;

/// What a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// HTML.
    Document,
    /// CSS.
    Stylesheet,
    /// JavaScript.
    Script,
    /// A picture.
    Image,
    /// A font.
    Font,
    /// What a script asked for.
    Fetch,
    /// Sound or video.
    Media,
    /// Anything else.
    Other,
}

impl Kind {
    const NAMES: [(Self, &str); 8] = [
        (Self::Document, "document"),
        (Self::Stylesheet, "stylesheet"),
        (Self::Script, "script"),
        (Self::Image, "image"),
        (Self::Font, "font"),
        (Self::Fetch, "fetch"),
        (Self::Media, "media"),
        (Self::Other, "other"),
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(kind, _)| *kind == self);
        named.map_or("other", |(_, name)| name)
    }

    /// The priority that Chromium gives to such a resource, if the page says nothing else.
    pub const fn priority(self) -> Priority {
        match self {
            Self::Document | Self::Stylesheet | Self::Font => Priority::Highest,
            Self::Script | Self::Fetch => Priority::High,
            Self::Image | Self::Media | Self::Other => Priority::Low,
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        by_name(&Self::NAMES, text)
    }
}

/// How urgent a browser takes a resource to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Asked for before all else.
    Highest,
    /// Scripts, for example.
    High,
    /// In between.
    Medium,
    /// Images, for example.
    Low,
    /// What may wait for everything else.
    Lowest,
}

impl Priority {
    const NAMES: [(Self, &str); 5] = [
        (Self::Highest, "highest"),
        (Self::High, "high"),
        (Self::Medium, "medium"),
        (Self::Low, "low"),
        (Self::Lowest, "lowest"),
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// Whether a browser may put off such a request until others are answered.
    pub fn can_wait(self) -> bool {
        self >= Self::Low
    }
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        by_name(&Self::NAMES, text)
    }
}

/// A resource or a task of a page, by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// Of [`Page::resources`].
    Resource(usize),
    /// Of [`Page::tasks`].
    Task(usize),
}

/// Something after which a resource is asked for, or a task begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cause {
    /// What must have come.
    pub of: Node,
    /// How much of it must have come: a share of a resource's body, from 0 to 1. A task must have ended.
    pub at: f64,
    /// How much later.
    pub wait: Span,
}

/// A resource that the browser fetches.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// What causes and reports call it.
    pub id: String,
    /// Scheme, host and path; no query, for that may hold secrets.
    pub url: String,
    /// What it is.
    pub kind: Kind,
    /// How urgent it is.
    pub priority: Priority,
    /// Bytes of the request, as HTTP/1.1 sends it.
    pub request_bytes: u64,
    /// Bytes of the response's header, as HTTP/1.1 sends it.
    pub header_bytes: u64,
    /// Bytes of the response's body as transferred.
    pub body_bytes: u64,
    /// From the arrival of the request to the first byte of the response.
    pub server_time: Span,
    /// All of them must be met; none: it is what the user asks for.
    pub causes: Vec<Cause>,
    /// Whether the load event waits for it.
    pub blocks_load: bool,
}

impl Resource {
    /// Scheme, host and port.
    pub fn origin(&self) -> &str {
        origin_of(&self.url)
    }
}

/// Scheme, host and port of a URL.
pub(crate) fn origin_of(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find('/');
    &url[..end.map_or(url.len(), |end| host + end)]
}

/// What the browser computes. Tasks run one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// What causes and reports call it.
    pub id: String,
    /// How long it takes.
    pub time: Span,
    /// All of them must be met.
    pub causes: Vec<Cause>,
    /// Whether the load event waits for it.
    pub blocks_load: bool,
}

/// A page: what a browser fetches and computes for it, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// For people.
    pub name: String,
    /// In the order in which the browser learns of them, at least one.
    pub resources: Vec<Resource>,
    /// In any order.
    pub tasks: Vec<Task>,
    /// Origins that one server has a certificate for: a connection of HTTP/2 or HTTP/3 serves all of a group. An origin is
    /// in one group at most.
    pub coalesced: Vec<Vec<String>>,
}

/// A page that cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageError {
    /// The resource or task, if it is one's fault.
    pub node: Option<Node>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PageError {}

impl Page {
    /// The most resources of a page, and the most tasks.
    pub const MAX_RESOURCES: usize = 20_000;
    /// The most bytes of one resource: the largest size that a page file has.
    pub const MAX_BYTES: u64 = 1_000_000_000_000;

    /// Whether it can be loaded: something begins, and everything else is caused by something.
    ///
    /// # Errors
    /// A [`PageError`] that says which resource cannot.
    pub fn check(&self) -> Result<(), PageError> {
        let wrong = |node, message: String| Err(PageError { node, message });
        if self.resources.is_empty() {
            return wrong(None, "the page has no resources".into());
        }
        if self.resources.len() > Self::MAX_RESOURCES || self.tasks.len() > Self::MAX_RESOURCES {
            let most = Self::MAX_RESOURCES;
            let message = format!("the page has more than {most} resources or tasks");
            return wrong(None, message);
        }
        let place = |node| match node {
            Node::Resource(number) => number,
            Node::Task(number) => self.resources.len() + number,
        };
        // what has all its causes met comes, and meets those of others
        let mut missing: Vec<usize> = Vec::new();
        let mut meets: HashMap<usize, Vec<usize>> = HashMap::new();
        let all = self.resources.iter().map(|one| &one.causes);
        for (number, causes) in all
            .chain(self.tasks.iter().map(|one| &one.causes))
            .enumerate()
        {
            missing.push(causes.len());
            for cause in causes {
                meets.entry(place(cause.of)).or_default().push(number);
            }
        }
        let mut ready: Vec<usize> = (0..missing.len())
            .filter(|&one| missing[one] == 0)
            .collect();
        if ready.iter().all(|&one| one >= self.resources.len()) {
            return wrong(None, "every resource waits for another one".into());
        }
        while let Some(one) = ready.pop() {
            for &other in meets.get(&one).into_iter().flatten() {
                missing[other] -= 1;
                if missing[other] == 0 {
                    ready.push(other);
                }
            }
        }
        if let Some(number) = missing.iter().position(|&left| left > 0) {
            let (node, id) = match number.checked_sub(self.resources.len()) {
                None => (Node::Resource(number), &self.resources[number].id),
                Some(task) => (Node::Task(task), &self.tasks[task].id),
            };
            return wrong(Some(node), format!("{id:?} waits for itself by its causes"));
        }
        Ok(())
    }

    /// The origins of its resources, each once, and the number of that of each resource.
    pub fn origins(&self) -> (Vec<&str>, Vec<usize>) {
        let mut names = Vec::new();
        let mut numbers = HashMap::new();
        let of_each = self.resources.iter().map(|resource| {
            *numbers.entry(resource.origin()).or_insert_with(|| {
                names.push(resource.origin());
                names.len() - 1
            })
        });
        let of_each = of_each.collect();
        (names, of_each)
    }

    /// How many servers the browser connects to by a protocol, and the number of that of each resource: those of its
    /// origins, of which coalesced ones are one by HTTP/2 and HTTP/3.
    pub fn servers(&self, protocol: Protocol) -> (usize, Vec<usize>) {
        let (names, mut of_each) = self.origins();
        if protocol == Protocol::Http1 || self.coalesced.is_empty() {
            return (names.len(), of_each);
        }
        let groups = self.coalesced.iter().enumerate();
        let group_of: HashMap<&str, usize> = groups
            .flat_map(|(group, origins)| origins.iter().map(move |one| (one.as_str(), group)))
            .collect();
        let (mut of_group, mut count) = (HashMap::new(), 0);
        let mut fresh = || {
            count += 1;
            count - 1
        };
        let servers: Vec<usize> = names
            .iter()
            .map(|name| match group_of.get(name) {
                Some(group) => *of_group.entry(group).or_insert_with(&mut fresh),
                None => fresh(),
            })
            .collect();
        of_each.iter_mut().for_each(|one| *one = servers[*one]);
        (count, of_each)
    }

    /// The most connections that a browser opens for it.
    pub fn connections(&self, protocol: Protocol) -> usize {
        let (servers, of_each) = self.servers(protocol);
        let mut resources = vec![0; servers];
        for server in of_each {
            resources[server] += 1;
        }
        let most = protocol.connections_per_origin();
        resources
            .into_iter()
            .map(|count: usize| count.min(most))
            .sum()
    }

    /// The same page with all resources on the origin of its first one, as a single server would serve it.
    #[must_use]
    pub fn on_one_origin(mut self) -> Self {
        let Some(first) = self.resources.first() else {
            return self;
        };
        let home = first.origin().to_string();
        self.coalesced.clear();
        for resource in &mut self.resources {
            let (origin, path) = resource.url.split_at(resource.origin().len());
            if origin != home {
                let host = origin.split("://").last().unwrap_or_default();
                resource.url = format!("{home}/{host}{path}");
            }
        }
        self
    }

    /// The same page as static files of one server: all on one origin, and without the time that servers and browser
    /// compute.
    #[must_use]
    pub fn as_replica(self) -> Self {
        let mut page = self.on_one_origin();
        for resource in &mut page.resources {
            resource.server_time = Span::ZERO;
        }
        for task in &mut page.tasks {
            task.time = Span::ZERO;
        }
        let of_resources = page.resources.iter_mut().map(|one| &mut one.causes);
        let of_tasks = page.tasks.iter_mut().map(|one| &mut one.causes);
        for cause in of_resources.chain(of_tasks).flatten() {
            cause.wait = Span::ZERO;
        }
        page
    }

    /// Bytes of all bodies.
    pub fn body_bytes(&self) -> u64 {
        self.resources.iter().map(|one| one.body_bytes).sum()
    }
}
