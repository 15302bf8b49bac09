//! Whole trials in virtual time, with page loads as they spread in the field.

use std::collections::BTreeMap;

use super::*;
use crate::report::{Applied, Completions, PrefixReport, Report};
use crate::trial::Stage;

/// Seeded values, uniform and of the normal law (Box and Muller).
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

const MODEL: &str = r#"{"format":1,"templates":[{"name":"lossy","knobs":{"congestion_control":"bbr"}},
    {"name":"other","knobs":{"initial_window":40}}],"features":["loss"],
    "tree":{"feature":"loss","threshold":0.01,"below":{"template":"default"},"otherwise":{"template":"lossy"}}}"#;

fn model() -> Model {
    Model::read(MODEL.as_bytes()).unwrap()
}

/// Clients whose page loads take a time with a spread of 0.5 between prefixes, 0.3 between loads of one prefix, and a
/// part of 0.15 that stays alike from slot to slot (autocorrelation 0.9). Means are of ln(ms).
struct World {
    fleet: Fleet,
    random: Random,
    clients: Vec<(Prefix, f64, f64)>,
    now_ms: u64,
    sequence: u64,
    /// Factor of times by template.
    factor: f64,
    versions: Vec<Version>,
}

impl World {
    fn new(seed: u64, prefixes: u32, factor: f64, settings: Settings) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let client = |number: u32, random: &mut Random| {
            let text = format!("10.{}.{}.0/24", number / 256, number % 256);
            (
                text.parse().unwrap(),
                7.0 + 0.5 * random.normal(),
                0.15 * random.normal(),
            )
        };
        let clients = (0..prefixes)
            .map(|number| client(number, &mut random))
            .collect();
        let mut fleet = Fleet::new(settings);
        fleet.set_model(model(), 0).unwrap();
        Self {
            fleet,
            random,
            clients,
            now_ms: 1,
            sequence: 0,
            factor,
            versions: vec![],
        }
    }

    fn template_of(&self, prefix: Prefix) -> Name {
        self.fleet.map().get(&prefix).cloned().unwrap_or_default()
    }

    /// Ten seconds: connections begin under the template in force, and are reported at the end.
    fn slot(&mut self, loss: f64, worse: f64) {
        self.reported(loss, worse);
        self.versions.extend(self.fleet.step(self.now_ms));
    }

    fn reported(&mut self, loss: f64, worse: f64) {
        let version = self.fleet.head().version;
        let mut prefixes = Vec::new();
        for i in 0..self.clients.len() {
            let (prefix, mean, shared) = self.clients[i];
            let template = self.template_of(prefix);
            let shared = 0.9 * shared + 0.15 * (1.0_f64 - 0.81).sqrt() * self.random.normal();
            self.clients[i].2 = shared;
            let factor = if template.is_default() {
                1.0
            } else {
                self.factor
            };
            let count = 3 + (self.random.uniform() * 5.0) as usize;
            let times: Vec<f64> = (0..count)
                .map(|_| (mean + shared + 0.3 * self.random.normal()).exp() * factor * worse)
                .collect();
            prefixes.push(PrefixReport {
                prefix,
                flows: count as u64 * 2,
                rtt_ms: Some(150.0),
                loss: Some(loss),
                bandwidth_mbps: Some(5.0),
                jitter_ms: None,
                completions: vec![Completions::of(template, version, &times).unwrap()],
            });
        }
        self.now_ms += 10_000;
        self.sequence += 1;
        let report = Report {
            format: 1,
            agent: "edge".into(),
            boot: "0011223344556677".into(),
            sequence: self.sequence,
            sent_at_ms: self.now_ms,
            applied: Applied {
                version,
                ok: true,
                errors: vec![],
            },
            prefixes,
        };
        report.check().unwrap();
        self.fleet.report(&report, self.now_ms);
    }

    fn stage(&self) -> Option<Stage> {
        self.fleet
            .trials()
            .values()
            .next_back()
            .map(|trial| trial.stage)
    }

    /// Runs until the trial is over. Its stage, and the loads that it took.
    fn verdict(&mut self) -> (Stage, f64) {
        loop {
            self.slot(0.03, 1.0);
            if let Some(stage) = self
                .stage()
                .filter(|stage| !matches!(stage, Stage::Shadow | Stage::Canary))
            {
                let loads = self.fleet.trials().values().next_back().unwrap().loads;
                return (stage, loads[0] + loads[1]);
            }
        }
    }
}

/// Verdicts of 200 trials, sorted by their loads.
fn verdicts(factor: f64, most_loads: f64) -> Vec<(f64, Stage)> {
    let settings = Settings {
        canary: 1.0,
        hold_out: 0.0,
        shadow_s: 0.0,
        most_loads,
        ..Settings::default()
    };
    let verdict = |seed| {
        let (stage, loads) = World::new(seed, 20, factor, settings.clone()).verdict();
        (loads, stage)
    };
    let mut all: Vec<_> = (1..=200).map(verdict).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

fn count(all: &[(f64, Stage)], stage: Stage) -> usize {
    all.iter().filter(|one| one.1 == stage).count()
}

#[test]
fn equal_templates_are_hardly_ever_promoted_or_rolled_back() {
    let all = verdicts(1.0, 20_000.0);
    let wrong = count(&all, Stage::Promoted) + count(&all, Stage::RolledBack);
    println!("A/A: {wrong} of 200 promoted or rolled back within 20,000 loads");
    assert!(wrong < 10, "{wrong} of 200");
}

#[test]
fn a_tenth_worse_rolls_back() {
    let all = verdicts(1.1, 3000.0);
    let right = count(&all, Stage::RolledBack);
    println!(
        "10 % worse: {right} of 200 rolled back within 3,000 loads; loads: median {}, 95 % {}",
        all[100].0, all[190].0
    );
    assert!(right >= 190, "{right} of 200");
    assert_eq!(count(&all, Stage::Promoted), 0);
}

#[test]
fn a_tenth_better_is_promoted() {
    let all = verdicts(0.9, 3000.0);
    let right = count(&all, Stage::Promoted);
    println!(
        "10 % better: {right} of 200 promoted within 3,000 loads; loads: median {}, 80 % {}",
        all[100].0, all[160].0
    );
    assert!(right >= 160, "{right} of 200");
    assert_eq!(count(&all, Stage::RolledBack), 0);
}

#[test]
fn a_shadow_applies_nothing_and_a_canary_a_fraction() {
    let mut world = World::new(3, 200, 0.8, Settings::default());
    while world.stage().is_none_or(|stage| stage == Stage::Shadow) {
        world.slot(0.03, 1.0);
        if world.stage() == Some(Stage::Shadow) {
            assert!(world.fleet.map().is_empty());
        }
    }
    assert!(world.now_ms >= 60_000);
    world.slot(0.03, 1.0);
    let members = world.fleet.trials().values().next().unwrap().prefixes();
    assert!((10..=30).contains(&members), "{members} of 200");
    assert!(world.fleet.map().len() <= members);
    let (stage, _) = world.verdict();
    assert_eq!(stage, Stage::Promoted);
    // all that call for it have it, and the hold-out group keeps the default
    let placed = |prefix: &Prefix| !world.template_of(*prefix).is_default();
    for (prefix, ..) in &world.clients {
        assert_eq!(
            placed(prefix),
            !world.fleet.is_held_out(*prefix),
            "{prefix}"
        );
    }
    let held_out = world
        .clients
        .iter()
        .filter(|one| world.fleet.is_held_out(one.0))
        .count();
    assert!((3..=20).contains(&held_out), "{held_out} of 200");
}

#[test]
fn a_path_that_turns_bad_rolls_back_within_a_minute() {
    let mut world = World::new(5, 100, 0.8, Settings::default());
    assert_eq!(world.verdict().0, Stage::Promoted);
    (0..6).for_each(|_| world.slot(0.03, 1.0));
    let before = world
        .fleet
        .map()
        .values()
        .filter(|name| !name.is_default())
        .count();
    assert!(before > 80);
    (0..6).for_each(|_| world.slot(0.03, 3.0));
    let after = world
        .fleet
        .map()
        .values()
        .filter(|name| !name.is_default())
        .count();
    assert_eq!(after, 0, "{before} before");
    assert_eq!(world.stage(), Some(Stage::RolledBack));
    assert!(
        world
            .versions
            .iter()
            .any(|version| version.cause == Cause::Guard || version.cause == Cause::Stage)
    );
}

#[test]
fn too_few_reports_or_unknown_loss_keep_the_default() {
    let mut world = World::new(
        5,
        20,
        0.8,
        Settings {
            least_reports: 1000,
            ..Settings::default()
        },
    );
    (0..30).for_each(|_| world.slot(0.03, 1.0));
    assert!(world.fleet.map().is_empty() && world.fleet.trials().is_empty());
}

/// The map by all changes since the beginning.
fn replayed(versions: &[Version]) -> BTreeMap<Prefix, Name> {
    let mut map = BTreeMap::new();
    for change in versions.iter().flat_map(|version| &version.changes) {
        assert_eq!(
            map.get(&change.prefix),
            change.before.as_ref(),
            "{}",
            change.prefix
        );
        match &change.after {
            Some(name) => map.insert(change.prefix, name.clone()),
            None => map.remove(&change.prefix),
        };
    }
    map
}

#[test]
fn versions_replay_to_the_map_whatever_happens() {
    for seed in 0..6 {
        let settings = Settings {
            shadow_s: 20.0,
            canary: 0.3,
            most_loads: 2000.0,
            ..Settings::default()
        };
        let mut world = World::new(seed, 60, [0.8, 1.2, 1.0][seed as usize % 3], settings);
        for round in 0..150 {
            let loss = if round % 50 < 35 { 0.03 } else { 0.001 };
            world.slot(loss, if round % 40 > 36 { 3.0 } else { 1.0 });
            let prefix = world.clients[(world.random.uniform() * 60.0) as usize].0;
            let id = world
                .fleet
                .trials()
                .keys()
                .next_back()
                .copied()
                .unwrap_or(1);
            let now = world.now_ms;
            match (world.random.uniform() * 25.0) as u32 {
                0 => world
                    .fleet
                    .pin(prefix, &"other".parse().unwrap(), "test")
                    .unwrap(),
                1 => drop(world.fleet.unpin(prefix, "test")),
                2 => drop(world.fleet.approve(id, "test", now)),
                3 => drop(world.fleet.revert(id, "test", now)),
                4 => world.fleet.set_model(model(), now).unwrap(),
                5 => {
                    let from = world.versions.len() / 2;
                    let since = crate::history::diff(&world.versions[from..]);
                    world.fleet.undo(from as u64, &since, "test", now);
                    world.versions.extend(world.fleet.step(now));
                    let pinned = world.fleet.head().pins.len();
                    let half = replayed(&world.versions[..from]);
                    assert_eq!(world.fleet.map(), &half, "{pinned} pins");
                    world.fleet.resume("test", now);
                }
                _ => {}
            }
            world.versions.extend(world.fleet.step(now));
            assert_eq!(
                &replayed(&world.versions),
                world.fleet.map(),
                "seed {seed}, round {round}"
            );
            let read = Configuration::read(&world.fleet.configuration().to_json()).unwrap();
            assert_eq!(read, world.fleet.configuration());
        }
        let placed: usize = world.fleet.placed.values().sum();
        let modes = world
            .fleet
            .entries
            .iter()
            .filter(|one| one.1.mode == Mode::Placed)
            .count();
        assert_eq!(placed, modes, "seed {seed}");
    }
}

#[test]
fn a_fleet_goes_on_from_what_was_stored() {
    let settings = Settings {
        shadow_s: 0.0,
        canary: 0.5,
        ..Settings::default()
    };
    let mut world = World::new(2, 40, 0.85, settings.clone());
    (0..12).for_each(|_| world.slot(0.03, 1.0));
    let fleet = &world.fleet;
    let stored = |fleet: &Fleet| {
        let trials: Vec<Trial> = fleet.trials().values().cloned().collect();
        let text = serde_json::to_string(&(fleet.head(), trials)).unwrap();
        let (head, trials): (Head, Vec<Trial>) = serde_json::from_str(&text).unwrap();
        Fleet::restore(
            settings.clone(),
            head,
            fleet.entries().to_vec(),
            fleet.map().clone(),
            trials,
        )
    };
    let again = stored(fleet);
    assert_eq!(again.configuration(), fleet.configuration());
    assert_eq!(
        again.placed.values().sum::<usize>(),
        fleet.placed.values().sum::<usize>()
    );
    world.fleet = again;
    assert_eq!(world.verdict().0, Stage::Promoted);
}

#[test]
fn the_model_of_fewer_templates_is_made_by_steps_not_by_reports() {
    let settings = Settings {
        templates: 1,
        ..Settings::default()
    };
    let mut world = World::new(1, 20, 1.0, settings);
    let made_ms = |world: &World| world.fleet.reduced.as_ref().map(|(_, made_ms)| *made_ms);
    assert_eq!(made_ms(&world), Some(0));
    world.now_ms = REDUCED_EACH_MS + 2;
    world.reported(0.02, 1.0);
    assert_eq!(made_ms(&world), Some(0));
    world.fleet.step(world.now_ms);
    assert_eq!(made_ms(&world), Some(world.now_ms));
}
