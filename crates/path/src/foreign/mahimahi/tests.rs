//! Command lines read, and read back from what is written.

use super::*;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(String::from).collect()
}

fn load(name: &str) -> Result<Vec<u8>, String> {
    match name {
        "up" => Ok(b"1\n2\n".to_vec()),
        "down" => Ok(b"5\n".to_vec()),
        "broken" => Ok(b"5\nx\n".to_vec()),
        _ => Err("no such file".into()),
    }
}

fn line(text: &str) -> CommandLine {
    read(&words(text), &mut load).unwrap()
}

fn error(text: &str) -> String {
    read(&words(text), &mut load).unwrap_err()
}

#[test]
fn a_usual_command_line_is_one_path() {
    let line = line(
        "mm-delay 20 mm-loss uplink 0.01 mm-link up down --uplink-queue=droptail \
         --uplink-queue-args=packets=100 --downlink-log d.log -- iperf3 -c host --json",
    );
    let [path] = &line.links[..] else {
        panic!("{line:?}")
    };
    let text = "rate = { kind = 'mahimahi', opportunities_ms = [1, 2] }\ndelay = '20 ms'\n\
                loss = 0.01\nqueue = '100 packets'\n\
                [reverse]\nrate = { kind = 'mahimahi', opportunities_ms = [5] }\n";
    assert_eq!(*path, Path::parse(text, "path.toml").unwrap());
    assert_eq!(line.command, words("iperf3 -c host --json"));
    assert_eq!(
        (line.uplink_log, line.downlink_log),
        (None, Some("d.log".into()))
    );
}

#[test]
fn shells_that_are_no_single_path_are_links_in_a_row_from_the_inside_out() {
    // loss before the link, seen from inside
    let before = line("mm-delay 5 mm-link up down mm-loss uplink 0.1 mm-delay 3 cat -n");
    assert_eq!(before.links.len(), 2);
    assert_eq!(before.links[0].forward.loss.mean(), 0.1);
    assert_eq!(before.links[0].base_rtt(), Span::from_millis(6));
    assert!(before.links[0].forward.rate.is_none() && before.links[1].forward.rate.is_some());
    assert_eq!(before.command, words("cat -n"));
    // and loss that packets from outside meet before the link
    assert_eq!(line("mm-loss downlink 0.1 mm-link up down").links.len(), 2);
    assert_eq!(line("mm-link up down mm-loss downlink 0.1").links.len(), 1);
    assert_eq!(line("mm-link up down mm-link down up").links.len(), 2);
    let losses = line("mm-loss uplink 0.5 mm-loss uplink 0.5 mm-loss downlink 0.1");
    assert_eq!(losses.links.len(), 1);
    assert_eq!(losses.links[0].forward.loss.mean(), 0.75);
}

#[test]
fn queues_are_read_with_their_arguments() {
    let queue = |text: &str| {
        let words = format!("mm-link up down --uplink-queue {text}");
        line(&words).links[0].forward.queue.clone()
    };
    let parse = |text: &str| {
        let text = format!("rate = '9 Mbit/s'\ndelay = '1 ms'\nqueue = {text}\n");
        Path::parse(&text, "path.toml").unwrap().forward.queue
    };
    assert_eq!(queue("infinite"), parse("'unlimited'"));
    assert_eq!(
        queue("drophead --uplink-queue-args=bytes=9000"),
        parse("{ kind = 'drophead', limit = '9000 B' }")
    );
    assert_eq!(
        queue("codel --uplink-queue-args=packets=50,target=6,interval=80"),
        parse("{ kind = 'codel', limit = '50 packets', target = '6 ms', interval = '80 ms' }")
    );
    assert_eq!(
        queue("pie --uplink-queue-args=bytes=90000,qdelay_ref=20,max_burst=100"),
        parse(
            "{ kind = 'pie', limit = '90 kB', target = '20 ms', max_burst = '100 ms', \
             update = '30 ms' }"
        )
    );
}

#[test]
fn what_is_not_understood_is_refused_with_what_would_be() {
    for (text, expected) in [
        (
            "",
            "got \"\", expected a command line that begins with mm-delay",
        ),
        ("ping host", "got \"ping\""),
        ("mm-delay", "mm-delay: got nothing"),
        (
            "mm-delay 2.5 cat",
            "mm-delay: got \"2.5\", expected whole milliseconds",
        ),
        ("mm-delay -1", "mm-delay: got \"-1\""),
        (
            "mm-loss up 0.1",
            "mm-loss: got \"up\" \"0.1\", expected `uplink`",
        ),
        ("mm-loss uplink 1", "mm-loss: got \"uplink\" \"1\""),
        ("mm-loss uplink nan", "mm-loss: got \"uplink\" \"nan\""),
        (
            "mm-onoff uplink 1 1",
            "mm-onoff: got a link that is switched off",
        ),
        (
            "mm-webreplay site",
            "got \"mm-webreplay\", expected mm-delay",
        ),
        ("mm-link up", "mm-link: got 1 trace files, expected two"),
        ("mm-link up nowhere", "nowhere: no such file"),
        ("mm-link up broken", "broken:2: got \"x\""),
        ("mm-link up down --once", "mm-link: got --once"),
        (
            "mm-link up down --uplink-queue=red",
            "got the queue \"red\"",
        ),
        (
            "mm-link up down --uplink-queue=droptail",
            "expected either packets or bytes",
        ),
        (
            "mm-link up down --uplink-queue=droptail --uplink-queue-args=packets=x",
            "got a droptail queue with \"packets=x\"",
        ),
        (
            "mm-link up down --uplink-queue=droptail --uplink-queue-args=bytes=100",
            "less than one packet",
        ),
        (
            "mm-link up down --downlink-queue=codel --downlink-queue-args=packets=9",
            "expected target and interval",
        ),
        ("mm-link up down --uplink-log", "expected a value"),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

/// What is read of what is written of a path.
fn again(path: &Path) -> (Vec<Path>, Vec<String>) {
    let foreign = write(path);
    let mut load = |name: &str| {
        let file = foreign.files.iter().find(|(file, _)| file == name);
        Ok(file.unwrap().1.clone().into_bytes())
    };
    let line = read(&words(&foreign.text), &mut load).unwrap();
    assert!(line.command.is_empty(), "{line:?}");
    (line.links, foreign.lost)
}

#[test]
fn what_is_written_is_read_back_where_it_can_be_said() {
    for text in [
        "delay = '20 ms'\nqueue = 'unlimited'\n",
        "delay = '0 ms'\nqueue = 'unlimited'\nloss = 0.25\n[reverse]\nloss = 1e-3\n",
        "rate = { kind = 'mahimahi', opportunities_ms = [0, 1, 1, 7] }\ndelay = '7 ms'\n\
         queue = '9 packets'\nloss = 0.125\n[reverse]\nloss = 0.5\nqueue = '9 kB'\n\
         rate = { kind = 'mahimahi', opportunities_ms = [3] }\n",
        "rate = { kind = 'mahimahi', opportunities_ms = [4] }\ndelay = '7 ms'\n\
         queue = { kind = 'codel', limit = '8 packets' }\n\
         [reverse]\nqueue = { kind = 'pie', limit = '1 MB', update = '30 ms' }\n",
        "rate = { kind = 'mahimahi', opportunities_ms = [4] }\ndelay = '7 ms'\n\
         queue = { kind = 'drophead', limit = '8 packets' }\n",
    ] {
        let path = Path::parse(text, "path.toml").unwrap();
        assert_eq!(again(&path), (vec![path], Vec::new()), "{text}");
    }
}

#[test]
fn what_cannot_be_said_is_told_and_the_rest_comes_back_the_same() {
    let text = "rate = '12 Mbit/s'\ndelay = { kind = 'jitter', base = '20 ms', jitter = '3 ms' }\n\
                loss = { kind = 'periodic', every = 10 }\nqueue = { kind = 'red' }\n\
                policer = { rate = '9 Mbit/s', burst = '30 kB' }\n\
                schedule = [{ at = '1 s', rate = '8 Mbit/s' }]\n[reverse]\ndelay = '10.5 ms'\n";
    let (links, lost) = again(&Path::parse(text, "path.toml").unwrap());
    let all = lost.join("\n");
    for what in [
        "forward policer",
        "forward schedule: 1 changes",
        "jitter of \"3 ms\" left out",
        "delay: \"20 ms\" forward and \"10.5 ms\" reverse",
        "independent losses of the same share, 0.1",
        "forward queue: mm-link has no such queue",
    ] {
        assert!(all.contains(what), "{what}: {all}");
    }
    assert_eq!(again(&links[0]), (links, Vec::new()));
}

#[test]
fn a_constant_rate_is_a_trace_of_the_same_mean() {
    let trace = |bps| constant_trace(Bandwidth::from_bps(bps).unwrap());
    assert_eq!(trace(12e6), (vec![1], true));
    assert_eq!(trace(1.2e5), (vec![100], true));
    assert_eq!(trace(30e6), (vec![0, 0, 1, 1, 2], true));
    for bps in [100e6, 1e9, 77.72e6, 0.564e6, 3e9] {
        let (moments, exact) = trace(bps);
        assert!(exact, "{bps}");
        let mean = MahimahiTrace::new(&moments).unwrap().mean_rate();
        assert!((mean.as_bps() / bps - 1.0).abs() < 1e-9, "{bps}");
    }
    let (moments, exact) = trace(1e6 * std::f64::consts::PI);
    assert_eq!((moments.len(), exact), (15_708, false));
    assert_eq!(trace(100.0), (vec![120_000], false));
}
