//! The agent at work: fetch, apply, look, report.

use std::fs::{self, File, OpenOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pathcast_control::{Applied, Configuration, FORMAT, Report};
use rustix::fs::{FlockOperation, flock};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::apply::Applier;
use crate::error::AgentError;
use crate::hands::Hands;
use crate::log::log;
use crate::manager::Manager;
use crate::observe::{Current, Observer};
use crate::settings::Settings;

/// How long the manager may wait for something new.
const WAIT: Duration = Duration::from_secs(25);
/// Between two looks at sockets and logs.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Between two tries at a manager that does not answer: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the lock of an agent that was just killed may last.
const LOCKED_WITHIN: Duration = Duration::from_secs(2);
/// Bounds of a report's errors.
const MOST_ERRORS: usize = 100;
const LONGEST_ERROR: usize = 500;

/// Only one agent may work with a folder; gives what holds it.
pub(crate) fn lock(settings: &Settings) -> Result<File, AgentError> {
    let at = |source| AgentError::File {
        file: settings.state.clone(),
        source,
    };
    fs::create_dir_all(&settings.state).map_err(at)?;
    let file = settings.state.join("lock");
    let open = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&file)
        .map_err(at)?;
    // a command that a killed agent was about to start may hold the lock for a moment
    let end = Instant::now() + LOCKED_WITHIN;
    while flock(&open, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() > end {
            return Err(AgentError::Settings(format!(
                "{}: another agent works with this folder; stop it first",
                settings.state.display()
            )));
        }
        sleep(Duration::from_millis(50));
    }
    Ok(open)
}

/// What a dry run prints: all that the manager's configuration of now would change.
pub(crate) fn dry_run(manager: &Manager, settings: Settings) -> Result<(), AgentError> {
    let hands = Hands { dry: true };
    let newest = manager.configuration(0, None, Duration::ZERO)?;
    let Some((configuration, text)) = newest else {
        println!("# the manager has no configuration yet: nothing would be changed");
        return Ok(());
    };
    let configuration = configuration.into_configuration();
    println!("# version {} of the configuration", configuration.version);
    Applier::new(settings, hands)?.apply(&configuration, &text)
}

/// Removes all that agents with these settings have set.
pub(crate) fn uninstall(settings: Settings, dry: bool) -> Result<(), AgentError> {
    let held = lock(&settings)?;
    let folder = settings.state.clone();
    let stays = Applier::new(settings, Hands { dry })?.uninstall()?;
    if !stays.is_empty() {
        let why = stays.join("; ");
        return Err(AgentError::Refused(format!("not all was removed: {why}")));
    }
    if !dry {
        drop(held);
        // somebody else may keep things there
        let _ = fs::remove_file(folder.join("lock"));
        let _ = fs::remove_dir(&folder);
    }
    Ok(())
}

/// Works until the process ends.
pub(crate) fn run(manager: &Manager, settings: Settings) -> Result<(), AgentError> {
    let _held = lock(&settings)?;
    let mut agent = Agent::new(settings)?;
    agent.resume();
    let newest = Arc::new(AtomicU64::new(agent.newest));
    let (offer, offered) = sync_channel(1);
    let fetcher = (manager.clone(), Arc::clone(&newest));
    spawn("pathcast-fetch", move || {
        fetch(&fetcher.0, &fetcher.1, &offer);
    })?;
    let (send, sent) = sync_channel(2);
    let reporter = manager.clone();
    spawn("pathcast-report", move || report(&reporter, &sent))?;
    loop {
        let next = Instant::now() + LOOK_EVERY;
        if let Ok(fetched) = offered.try_recv() {
            agent.take(fetched);
            newest.store(agent.newest, Ordering::Release);
        }
        agent.look();
        agent.report_if_due(&send);
        sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), AgentError> {
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    spawned.map(drop).map_err(AgentError::refused)
}

/// What a fetch gives: a configuration and its text, or why there is none.
type Fetched = Result<(Configuration, String), AgentError>;

/// Asks for configurations until the process ends.
fn fetch(manager: &Manager, newest: &AtomicU64, offer: &SyncSender<Fetched>) {
    let mut pause = FIRST_PAUSE;
    // the last one that came: the manager may send what changed since
    let mut base = None;
    loop {
        let have = newest.load(Ordering::Acquire);
        let fetched = match manager.configuration(have, base.as_ref(), WAIT) {
            Ok(None) => {
                pause = FIRST_PAUSE;
                continue;
            }
            Ok(Some((tracked, text))) => {
                let found = tracked.configuration().clone();
                base = Some(tracked);
                Ok((found, text))
            }
            Err(error) => {
                // what changed did not fit: the whole comes next
                if matches!(error, AgentError::Configuration(_)) {
                    base = None;
                }
                Err(error)
            }
        };
        let failed = fetched.is_err();
        let version = fetched
            .as_ref()
            .map_or(have, |(configuration, _)| configuration.version);
        if offer.send(fetched).is_err() {
            return; // the agent has ended
        }
        if failed || version <= have {
            sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            continue;
        }
        pause = FIRST_PAUSE;
        // until it is applied or refused, the same would come again
        while newest.load(Ordering::Acquire) < version {
            sleep(Duration::from_millis(20));
        }
    }
}

/// Sends reports until the process ends; one that cannot be sent within a while is dropped.
fn report(manager: &Manager, reports: &Receiver<Report>) {
    for mut report in reports {
        let mut tries = 0;
        loop {
            tries += 1;
            report.sent_at_ms = now_ms();
            let error = match manager.report(&report) {
                Ok(()) => break,
                Err(error) => error,
            };
            log(
                "warning",
                "report",
                &[("why", error.to_string().into()), ("tries", tries.into())],
            );
            // a refused report is refused again
            let refused = error.to_string().contains(": status 4");
            if refused || tries >= 3 {
                break;
            }
            sleep(Duration::from_secs(2));
        }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

struct Agent {
    applier: Applier,
    observer: Observer,
    in_force: Current,
    /// The newest version that was offered, applied or not.
    newest: u64,
    /// Why the newest is not in force.
    refused: Option<String>,
    boot: String,
    sequence: u64,
    reported: Instant,
}

impl Agent {
    fn new(settings: Settings) -> Result<Self, AgentError> {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty()).map_err(AgentError::refused)?;
        let observer = Observer::new(&settings);
        Ok(Self {
            applier: Applier::new(settings, Hands::default())?,
            observer,
            in_force: Current {
                configuration: Configuration::empty(),
                since: SystemTime::now(),
            },
            newest: 0,
            refused: None,
            boot: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            sequence: 0,
            reported: Instant::now(),
        })
    }

    /// Applies the last good configuration from disk.
    fn resume(&mut self) {
        let Some(text) = self.applier.record.configuration.clone() else {
            return;
        };
        match Configuration::read(text.as_bytes()) {
            Ok(configuration) => self.apply(configuration, &text),
            Err(error) => log("error", "resume", &[("why", error.to_string().into())]),
        }
    }

    fn take(&mut self, fetched: Fetched) {
        match fetched {
            Ok((configuration, text)) => {
                let version = configuration.version;
                let ours = self.in_force.configuration.version;
                if version < ours {
                    self.refused = Some(format!(
                        "got version {version}, expected above {ours}, which is in force: has the manager lost its state?"
                    ));
                } else if version > ours {
                    self.apply(configuration, &text);
                }
            }
            // what the manager sent is not to be believed; one that is away says nothing of what is in force
            Err(error @ AgentError::Configuration(_)) => {
                log(
                    "error",
                    "configuration",
                    &[("why", error.to_string().into())],
                );
                self.refused = Some(error.to_string());
            }
            Err(error) => log("warning", "manager", &[("why", error.to_string().into())]),
        }
    }

    fn apply(&mut self, configuration: Configuration, text: &str) {
        let version = configuration.version;
        self.newest = version;
        let begun = Instant::now();
        match self.applier.apply(&configuration, text) {
            Ok(()) => {
                let took_ms = begun.elapsed().as_secs_f64() * 1000.0;
                let more = [("version", version.into()), ("took_ms", took_ms.into())];
                log("info", "applied", &more);
                self.refused = None;
                self.in_force = Current {
                    configuration,
                    since: SystemTime::now(),
                };
            }
            Err(error) => {
                let why = format!("version {version}: {error}");
                log("error", "refused", &[("why", why.clone().into())]);
                self.refused = Some(why);
            }
        }
    }

    fn look(&mut self) {
        if let Err(error) = self.observer.look(&self.in_force, &self.applier.plan) {
            log("warning", "look", &[("why", error.to_string().into())]);
        }
    }

    fn report_if_due(&mut self, send: &SyncSender<Report>) {
        let every = Duration::from_secs_f64(self.applier.settings.report_every_s);
        if self.reported.elapsed() < every {
            return;
        }
        let mut errors: Vec<String> = self.refused.iter().cloned().collect();
        if self.in_force.configuration.version > 0 {
            if self.applier.routes_changed() {
                let again = self.in_force.configuration.clone();
                let text = self
                    .applier
                    .record
                    .configuration
                    .clone()
                    .unwrap_or_default();
                if let Err(error) = self.applier.apply(&again, &text) {
                    errors.push(format!("routes: {error}"));
                }
            }
            errors.extend(self.applier.differences());
        }
        let (prefixes, wrong) = self.observer.take(&self.in_force);
        errors.extend(wrong);
        if self.observer.bad_lines > 0 {
            let count = std::mem::take(&mut self.observer.bad_lines);
            log("warning", "log_lines", &[("not_read", count.into())]);
        }
        errors.truncate(MOST_ERRORS);
        for error in &mut errors {
            *error = error.chars().take(LONGEST_ERROR).collect();
        }
        self.sequence += 1;
        let report = Report {
            format: FORMAT,
            agent: self.applier.settings.name.clone(),
            boot: self.boot.clone(),
            sequence: self.sequence,
            sent_at_ms: now_ms(),
            applied: Applied {
                version: self.in_force.configuration.version,
                ok: errors.is_empty(),
                errors,
            },
            prefixes,
        };
        if let Err(TrySendError::Full(_)) = send.try_send(report) {
            log(
                "warning",
                "report",
                &[("why", "the last ones are still being sent".into())],
            );
        }
        self.reported = Instant::now();
    }
}
