use super::*;
use crate::player::{LOOKS_EVERY_S, Player};
use crate::session::Session;

fn ladder(count: usize) -> Ladder {
    let bitrates = [0.3, 0.6, 1.2, 2.4, 4.8, 9.6].map(|mbps| mbps * 1e6);
    Ladder::constant(4.0, count, bitrates.to_vec()).unwrap()
}

/// A session over a path whose rate is `rate(seconds)`, with 50 ms for each request.
fn watch(rule: &str, rate: impl Fn(f64) -> f64) -> Session {
    watch_segments(75, rule, rate)
}

fn watch_segments(count: usize, rule: &str, rate: impl Fn(f64) -> f64) -> Session {
    let mut player = Player::new(
        ladder(count),
        rule.parse().unwrap(),
        PlayerOptions::default(),
    );
    let mut now = 0.0;
    while let Some(ask) = player.ask(now) {
        now += 0.05;
        let mut left = 8.0 * ask.bytes as f64;
        while left > 0.0 {
            left -= 0.01 * rate(now);
            now += 0.01;
        }
        match player.on_arrival(now) {
            Some(next) => now = next,
            None => break,
        }
    }
    player.session().clone()
}

/// As `watch`, with a player that looks at downloads; what is given up does not come.
fn watch_abandoning(rule: &str, abandon: &str, rate: impl Fn(f64) -> f64) -> Session {
    let options = PlayerOptions {
        abandon: abandon.parse().unwrap(),
        ..PlayerOptions::default()
    };
    let mut player = Player::new(ladder(75), rule.parse().unwrap(), options);
    let mut now = 0.0;
    while let Some(ask) = player.ask(now) {
        now += 0.05;
        let (mut bytes, mut came, mut looked) = (ask.bytes as f64, 0.0, now);
        while came < bytes {
            came += 0.01 * rate(now) / 8.0;
            now += 0.01;
            player.on_first_byte(now);
            if player.looks() && came < bytes && now >= looked + LOOKS_EVERY_S {
                looked = now;
                if let Some(instead) = player.on_progress(now, came as u64) {
                    assert_eq!(instead.segment, ask.segment);
                    (bytes, came) = (instead.bytes as f64, 0.0);
                    now += 0.05;
                }
            }
        }
        match player.on_arrival(now) {
            Some(next) => now = next,
            None => break,
        }
    }
    player.session().clone()
}

/// All but `fixed`, which looks at nothing.
fn rules() -> impl Iterator<Item = &'static str> {
    let names = Rule::NAMES.into_iter();
    names.filter(|name| !name.starts_with("fixed"))
}

#[test]
fn names_are_read_back() {
    for name in Rule::NAMES {
        let rule: Rule = name.parse().unwrap();
        assert_eq!(rule.name().parse(), Ok(rule));
    }
    for wrong in [
        "",
        "fixed",
        "fixed:-1",
        "fixed:1.5",
        "fixed:64",
        "confident",
        "confident:1",
        "mpc:nan",
        "bola:2",
        "mpc:",
    ] {
        assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
    }
}

#[test]
fn over_a_steady_path_all_rules_find_the_bitrate_that_it_carries() {
    for rule in rules() {
        let session = watch(rule, |_| 4e6);
        let chosen: Vec<usize> = session.segments.iter().map(|one| one.version).collect();
        assert_eq!(session.stalls(), 0, "{rule}: {chosen:?}");
        // 2.4 Mbit/s; what looks at the buffer also takes 4.8 at times, and never less than 1.2
        let settled = &chosen[20..];
        let mean = settled.iter().sum::<usize>() as f64 / settled.len() as f64;
        assert!((2.8..=3.7).contains(&mean), "{rule}: {mean} {chosen:?}");
    }
}

#[test]
fn a_path_that_gets_slow_lowers_the_bitrate_before_the_buffer_is_empty() {
    for rule in rules() {
        let rate = |now: f64| if now < 100.0 { 12e6 } else { 0.8e6 };
        // the video goes on: at its end, what plans may use up the buffer
        let session = watch_segments(95, rule, rate);
        // what looks at the buffer goes up and down around what the path carries
        let last = &session.segments[65..75];
        let mean = last.iter().map(|one| one.bitrate_bps).sum::<f64>() / 10.0;
        assert!(mean < 1.0e6, "{rule}: {last:?}");
        assert!(
            session.stalled_s() < 45.0,
            "{rule}: {}",
            session.stalled_s()
        );
    }
    let fixed = watch("fixed:5", |now| if now < 100.0 { 12e6 } else { 0.8e6 });
    assert!(fixed.stalled_s() > 500.0);
}

#[test]
fn a_path_that_varies_gets_less_with_more_confidence() {
    // seconds of 1 and of 7 Mbit/s, in an order of their own
    let rate = |now: f64| {
        if (now * 3.1).sin() + (now * 1.37).sin() > 0.2 {
            7e6
        } else {
            1e6
        }
    };
    let bitrates: Vec<f64> = ["confident:0.5", "confident:0.9", "confident:0.99"]
        .map(|rule| watch(rule, rate).mean_bitrate_bps())
        .to_vec();
    assert!(
        bitrates[0] > bitrates[1] && bitrates[1] >= bitrates[2],
        "{bitrates:?}"
    );
    let bold = watch("mpc:0.1", rate);
    let careful = watch("mpc:20", rate);
    assert!(careful.stalled_s() < bold.stalled_s());
}

#[test]
fn plans_see_the_sizes_of_segments() {
    // the second segment of the highest version is as large as ten
    let bitrates = vec![1e6, 2e6];
    let sizes = vec![vec![500_000; 12], {
        let mut sizes = vec![1_000_000; 12];
        sizes[6] = 20_000_000;
        sizes
    }];
    let ladder = Ladder::constant(4.0, 12, bitrates)
        .unwrap()
        .with_sizes(sizes)
        .unwrap();
    for rule in ["robust-mpc", "mpc", "confident:0.9"] {
        let mut player = Player::new(
            ladder.clone(),
            rule.parse().unwrap(),
            PlayerOptions::default(),
        );
        let (mut now, mut chosen) = (0.0, Vec::new());
        while let Some(ask) = player.ask(now) {
            chosen.push(ask.version);
            now += 8.0 * ask.bytes as f64 / 4e6;
            now = player.on_arrival(now).unwrap_or(now);
        }
        assert_eq!(
            (chosen[5], chosen[6], chosen[7]),
            (1, 0, 1),
            "{rule}: {chosen:?}"
        );
    }
}

/// Rules whose players give up downloads.
const ABANDONING: [&str; 3] = ["dash.js", "hls.js", "mpc"];

#[test]
fn where_a_path_breaks_down_a_player_that_gives_up_stalls_less() {
    // 20 s at a fiftieth, again and again
    let rate = |now: f64| if now % 60.0 < 40.0 { 9e6 } else { 0.18e6 };
    for rule in ABANDONING {
        let waits = watch_abandoning(rule, "never", rate);
        let gives_up = watch_abandoning(rule, "own", rate);
        assert_eq!((waits.abandoned(), waits.wasted_bytes()), (0, 0), "{rule}");
        assert!(gives_up.abandoned() > 0, "{rule}");
        assert!(gives_up.wasted_bytes() > 0, "{rule}");
        let stalled = [waits.stalled_s(), gives_up.stalled_s()];
        assert!(
            stalled[1] < 0.7 * stalled[0] || stalled[0] == 0.0,
            "{rule}: {stalled:?}"
        );
        // it asks for less, not for more
        for one in gives_up.segments.iter().filter(|one| one.abandoned > 0) {
            assert!(one.version < 5, "{rule}: {one:?}");
        }
    }
}

#[test]
fn over_a_steady_path_nothing_is_given_up() {
    for rule in ABANDONING {
        let session = watch_abandoning(rule, "own", |_| 4e6);
        assert_eq!((session.abandoned(), session.stalls()), (0, 0), "{rule}");
    }
}
