//! Rattan's configuration: cells in a row, one row for each direction.

mod read;

pub use read::{Configuration, read};

use std::fmt::Write;

use crate::foreign::{Foreign, directions, time};
use crate::link::LinkSpec;
use crate::path::{Direction, Path};
use crate::queue::Discipline;

/// The path as a configuration file, and the traces that it names.
pub fn write(path: &Path) -> Foreign {
    let mut foreign = Foreign::default();
    let mut text = String::from("[env]\nmode = \"Compatible\"\n");
    let mut links = String::from("\n[links]\n");
    let ends = [("up", "left", "right"), ("down", "right", "left")];
    for ((name, direction), (way, from, to)) in directions(path).into_iter().zip(ends) {
        foreign.lose_what_nobody_has(name, direction);
        if direction.policer.is_some() {
            foreign.lose(format!("{name} policer: left out"));
        }
        let mut last = from.to_string();
        for (kind, cell) in cells(name, way, path, direction, &mut foreign) {
            let cell_name = format!("{way}_{kind}");
            let _ = write!(text, "\n[cells.{cell_name}]\n{cell}");
            let _ = writeln!(links, "{last} = \"{cell_name}\"");
            last = cell_name;
        }
        let _ = writeln!(links, "{last} = \"{to}\"");
    }
    foreign.text = text + &links;
    foreign
}

/// The cells of one direction in the order in which a packet meets them.
fn cells(
    name: &str,
    way: &str,
    path: &Path,
    direction: &Direction,
    foreign: &mut Foreign,
) -> Vec<(&'static str, String)> {
    let mut cells = Vec::new();
    if let Some(rate) = &direction.rate {
        let link = if let LinkSpec::Mahimahi(trace) = rate {
            let file = format!("{way}link.trace");
            let mut lines = String::new();
            for moment in trace.opportunities_ms() {
                let _ = writeln!(lines, "{moment}");
            }
            let link = format!("type = \"BwReplay\"\ntrace = \"./{file}\"\n");
            foreign.files.push((file, lines));
            link
        } else {
            let bps = foreign.constant_rate(name, rate).as_bps();
            format!("type = \"Bw\"\nbandwidth = \"{bps:.0}bps\"\n")
        };
        cells.push(("bw", link + &queue(name, path, direction, foreign)));
    }
    let loss = foreign.independent_loss(name, &direction.loss);
    if loss > 0.0 {
        cells.push(("loss", format!("type = \"Loss\"\npattern = [{loss:?}]\n")));
    }
    let delay = time(foreign.fixed_delay(name, &direction.delay));
    cells.push(("delay", format!("type = \"Delay\"\ndelay = \"{delay}\"\n")));
    cells
}

fn queue(name: &str, path: &Path, direction: &Direction, foreign: &mut Foreign) -> String {
    let (bytes, packets) = path.queue_limits(direction);
    let limits = [("packet_limit", packets), ("byte_limit", bytes)];
    let limits = limits.into_iter().filter(|(_, limit)| *limit != u64::MAX);
    let mut config: Vec<String> = limits.map(|(key, n)| format!("{key} = {n}")).collect();
    let kind = match &direction.queue.discipline {
        Discipline::DropTail | Discipline::DropHead if config.is_empty() => "Infinite",
        Discipline::DropTail => "DropTail",
        Discipline::DropHead => "DropHead",
        Discipline::CoDel(spec) => {
            config.push(format!("target = \"{}\"", time(spec.target)));
            config.push(format!("interval = \"{}\"", time(spec.interval)));
            if spec.ecn {
                foreign.lose(format!("{name} queue: rattan marks no packets (ECN)"));
            }
            "CoDel"
        }
        _ => {
            foreign.lose(format!(
                "{name} queue: written as droptail, for rattan's configuration has none that is alike"
            ));
            "DropTail"
        }
    };
    let mut text = format!("queue = \"{kind}\"\n");
    if !config.is_empty() {
        let _ = writeln!(text, "queue_config = {{ {} }}", config.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_in_the_order_of_a_path_and_are_linked() {
        let text = "rate = '12 Mbit/s'\ndelay = '20 ms'\nloss = 0.01\nqueue = '60 packets'\n\
                    [reverse]\nrate = { kind = 'mahimahi', opportunities_ms = [3, 5] }\n";
        let foreign = write(&Path::parse(text, "path.toml").unwrap());
        let expected = "\
            [env]\nmode = \"Compatible\"\n\n\
            [cells.up_bw]\ntype = \"Bw\"\nbandwidth = \"12000000bps\"\nqueue = \"DropTail\"\n\
            queue_config = { packet_limit = 60 }\n\n\
            [cells.up_loss]\ntype = \"Loss\"\npattern = [0.01]\n\n\
            [cells.up_delay]\ntype = \"Delay\"\ndelay = \"20ms\"\n\n\
            [cells.down_bw]\ntype = \"BwReplay\"\ntrace = \"./downlink.trace\"\n\
            queue = \"Infinite\"\n\n\
            [cells.down_delay]\ntype = \"Delay\"\ndelay = \"20ms\"\n\n\
            [links]\nleft = \"up_bw\"\nup_bw = \"up_loss\"\nup_loss = \"up_delay\"\n\
            up_delay = \"right\"\nright = \"down_bw\"\ndown_bw = \"down_delay\"\n\
            down_delay = \"left\"\n";
        assert_eq!(foreign.text, expected);
        assert_eq!(foreign.files, [("downlink.trace".into(), "3\n5\n".into())]);
        assert!(foreign.lost.is_empty());
        assert!(toml::de::DeTable::parse(&foreign.text).is_ok());
    }

    #[test]
    fn what_rattan_lacks_is_told() {
        let text = "rate = { kind = 'poisson', rate = '9 Mbit/s' }\ndelay = '1 ms'\n\
                    queue = { kind = 'fq-codel' }\npolicer = { rate = '9 Mbit/s', burst = '30 kB' }\n";
        let foreign = write(&Path::parse(text, "path.toml").unwrap());
        let all = foreign.lost.join("\n");
        for what in [
            "forward rate: varies",
            "forward policer",
            "forward queue",
            "reverse rate",
        ] {
            assert!(all.contains(what), "{what}: {all}");
        }
    }
}
