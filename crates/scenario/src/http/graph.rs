//! Which resources and tasks of a page have come, and what may begin because of it.

use pathcast_page::{Cause, Node, Page};
use pathcast_path::Time;

/// What depends on a node.
#[derive(Clone, Copy, Debug)]
struct Dependent {
    node: u32,
    cause: Cause,
}

/// Progress of a node's causes.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    missing: u32,
    /// When the causes that were met allow it to begin.
    ready: Time,
}

/// See the module. A node is a number: resources first, then tasks.
#[derive(Debug)]
pub(super) struct Graph {
    /// Of each node, by how much of it must have come.
    dependents: Vec<Vec<Dependent>>,
    waiting: Vec<Waiting>,
    blocks: Vec<bool>,
    resources: usize,
    /// How many dependents of each node were served.
    served: Vec<u32>,
    /// Nodes that have not come, and those of them that the load event waits for.
    left: usize,
    left_blocking: usize,
}

impl Graph {
    pub(super) fn new(page: &Page) -> Self {
        let resources = page.resources.len();
        let number = |node| match node {
            Node::Resource(number) => number,
            Node::Task(number) => resources + number,
        };
        let causes = page.resources.iter().map(|one| &one.causes);
        let causes: Vec<_> = causes
            .chain(page.tasks.iter().map(|one| &one.causes))
            .collect();
        let blocks = page.resources.iter().map(|one| one.blocks_load);
        let blocks: Vec<_> = blocks
            .chain(page.tasks.iter().map(|one| one.blocks_load))
            .collect();
        let mut dependents = vec![Vec::new(); causes.len()];
        for (node, causes) in causes.iter().enumerate() {
            for &cause in *causes {
                let node = node as u32;
                dependents[number(cause.of)].push(Dependent { node, cause });
            }
        }
        for list in &mut dependents {
            list.sort_by(|a: &Dependent, b| a.cause.at.total_cmp(&b.cause.at));
        }
        let waiting = causes.iter().map(|causes| Waiting {
            missing: causes.len() as u32,
            ready: Time::ZERO,
        });
        Self {
            waiting: waiting.collect(),
            served: vec![0; causes.len()],
            left: causes.len(),
            left_blocking: blocks.iter().filter(|blocks| **blocks).count(),
            dependents,
            blocks,
            resources,
        }
    }

    pub(super) fn resources(&self) -> usize {
        self.resources
    }

    /// The nodes without causes.
    pub(super) fn roots(&self) -> impl Iterator<Item = usize> {
        let waiting = self.waiting.iter().enumerate();
        waiting
            .filter(|(_, waiting)| waiting.missing == 0)
            .map(|(node, _)| node)
    }

    /// A share `at` of `node` has come at `now`: calls `begin` with each node that may begin by it, and when.
    pub(super) fn come(
        &mut self,
        now: Time,
        node: usize,
        at: f64,
        mut begin: impl FnMut(usize, Time),
    ) {
        let dependents = &self.dependents[node];
        while let Some(dependent) = dependents.get(self.served[node] as usize)
            && dependent.cause.at <= at
        {
            self.served[node] += 1;
            let waiting = &mut self.waiting[dependent.node as usize];
            waiting.ready = waiting.ready.max(now + dependent.cause.wait);
            waiting.missing -= 1;
            if waiting.missing == 0 {
                begin(dependent.node as usize, waiting.ready);
            }
        }
    }

    /// All of `node` has come; whether that was the last that the load event waits for. Call after `come`.
    pub(super) fn finish(&mut self, node: usize) -> bool {
        self.left -= 1;
        if !self.blocks[node] {
            return false;
        }
        self.left_blocking -= 1;
        self.left_blocking == 0
    }

    /// Whether everything has come.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }
}
