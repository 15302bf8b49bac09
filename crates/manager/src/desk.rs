//! What requests read and change, in memory: the fleet, agents, and what waits to be written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use pathcast_control::{Agent, Fleet, Refusal, Report, Secret, Settings};

use crate::store::{Batch, Stored};

/// Entries that were only observed and are written in one batch.
const OBSERVED: usize = 4000;
/// Trials without a change of stage are written so often, milliseconds.
const TRIALS_EACH_MS: u64 = 1000;

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The fleet and the agents.
pub struct Desk {
    /// The fleet.
    pub fleet: Fleet,
    agents: BTreeMap<String, (Agent, Secret)>,
    /// Names by the digest of their secret.
    digests: HashMap<[u8; 32], String>,
    touched: BTreeSet<String>,
    removed: Vec<String>,
    /// Whether an operator or the learner changed something.
    is_operated: bool,
    trials_ms: u64,
    last_ms: u64,
    /// Number of the batch that will hold what is changed now.
    pub batch: u64,
}

impl Desk {
    /// The desk as it was stored.
    pub fn new(settings: Settings, stored: Stored) -> Self {
        let Stored {
            head,
            entries,
            map,
            trials,
            agents,
        } = stored;
        let mut desk = Self {
            fleet: Fleet::restore(settings, head, entries, map, trials),
            agents: BTreeMap::new(),
            digests: HashMap::new(),
            touched: BTreeSet::new(),
            removed: Vec::new(),
            is_operated: false,
            trials_ms: 0,
            last_ms: 0,
            batch: 1,
        };
        for (agent, secret) in agents {
            desk.digests.insert(secret.digest(), agent.name.clone());
            desk.agents.insert(agent.name.clone(), (agent, secret));
        }
        desk
    }

    /// The time: it does not go back, even if the machine's clock does.
    pub fn now_ms(&mut self) -> u64 {
        self.last_ms = self.last_ms.max(now_ms());
        self.last_ms
    }

    /// Agents by name.
    pub fn agents(&self) -> impl Iterator<Item = &Agent> {
        self.agents.values().map(|(agent, _)| agent)
    }

    /// The agent that a header Authorization is of, and its secret.
    pub fn agent_of(&self, header: &str) -> Option<(String, Secret)> {
        let given: Secret = header.strip_prefix("Bearer ")?.parse().ok()?;
        let name = self.digests.get(&given.digest())?;
        let (_, secret) = self.agents.get(name)?;
        (*secret == given).then(|| (name.clone(), secret.clone()))
    }

    /// Adds an agent with its secret, or replaces the secret of a known one.
    pub fn add_agent(&mut self, name: &str, secret: &Secret) {
        let agent = match self.agents.remove(name) {
            Some((agent, former)) => {
                self.digests.remove(&former.digest());
                agent
            }
            None => Agent::new(name),
        };
        self.digests.insert(secret.digest(), name.into());
        self.agents.insert(name.into(), (agent, secret.clone()));
        self.touched.insert(name.into());
    }

    /// Removes an agent; false if it is not known.
    pub fn remove_agent(&mut self, name: &str) -> bool {
        let Some((_, secret)) = self.agents.remove(name) else {
            return false;
        };
        self.digests.remove(&secret.digest());
        self.touched.remove(name);
        self.removed.push(name.into());
        true
    }

    /// Takes a report of an agent.
    ///
    /// # Errors
    /// [`Refusal`] if it is old or replayed.
    pub fn report(&mut self, name: &str, report: &Report) -> Result<(), Refusal> {
        let now_ms = self.now_ms();
        let (agent, _) = self.agents.get_mut(name).ok_or(Refusal::Agent)?;
        // the machine's clock, which agents' clocks are compared with
        agent.accept(report, self::now_ms())?;
        self.touched.insert(name.into());
        self.fleet.report(report, now_ms);
        Ok(())
    }

    /// Notes that an operator or the learner changed something.
    pub fn operated(&mut self) {
        self.is_operated = true;
    }

    /// Goes on to now, and returns what is to be written, with its number.
    pub fn batch(&mut self) -> (u64, Batch) {
        let now_ms = self.now_ms();
        let version = self.fleet.step(now_ms);
        let is_new = version.is_some() || self.is_operated;
        let number = self.batch;
        self.batch += 1;
        let has_trials = is_new || now_ms.saturating_sub(self.trials_ms) >= TRIALS_EACH_MS;
        let trials = match has_trials {
            true => self.fleet.drain_trials(),
            false => Vec::new(),
        };
        if has_trials {
            self.trials_ms = now_ms;
        }
        let entries = self.fleet.drain_changed(OBSERVED);
        let entry = |prefix| Some((prefix, self.fleet.entry(prefix)?.clone()));
        let entries = entries.into_iter().filter_map(entry).collect();
        let of = |name: &String| {
            self.agents
                .get(name)
                .map(|(agent, secret)| (agent.clone(), Some(secret.clone())))
        };
        let mut agents: Vec<_> = self
            .removed
            .iter()
            .map(|name| (Agent::new(name), None))
            .collect();
        agents.extend(self.touched.iter().filter_map(of));
        self.removed.clear();
        self.touched.clear();
        let head = (is_new || !trials.is_empty()).then(|| self.fleet.head().clone());
        self.is_operated = false;
        (
            number,
            Batch {
                version,
                head,
                entries,
                trials,
                agents,
            },
        )
    }
}

/// A desk that requests share.
pub struct Shared(Mutex<Desk>);

impl Shared {
    /// Shares a desk.
    pub fn new(desk: Desk) -> Self {
        Self(Mutex::new(desk))
    }

    /// The desk, for as long as the result lives: no request waits in between.
    pub fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
