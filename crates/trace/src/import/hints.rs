//! Recognizes unsupported files, so that an error can suggest an alternative.

/// What a file that begins with `head` is and what to use instead, for unsupported files that
/// people commonly try.
pub(super) fn hint(head: &[u8]) -> Option<&'static str> {
    let text = String::from_utf8_lossy(head);
    text.lines()
        .take(200)
        .find_map(|line| line_hint(line.trim()))
}

fn line_hint(line: &str) -> Option<&'static str> {
    let words: Vec<&str> = line.split_whitespace().take(6).collect();
    match words[..] {
        ["[", "ID]", "Interval", ..] | ["Connecting", "to", "host", _, "port", _] => Some(
            "is iperf3's text, which leaves out what its JSON has; run iperf3 with -J and give that",
        ),
        ["Client", "connecting", "to", ..] | ["Server", "listening", "on", ..] => Some(
            "is the text of iperf or iperf3, which has no series of windows; run iperf3 with -J and give \
             that",
        ),
        ["qdisc", _, handle, ..] if handle.ends_with(':') => Some(
            "is the output of tc -s qdisc, which tells of a queue and of no flow; sample the flows with \
             ss -tin, or capture their packets",
        ),
        ["PING", _, ..] => Some(
            "is the output of ping, which tells of no flow of TCP; sample flows with ss -tin, or \
             capture their packets",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::import::testing::read;

    #[test]
    fn what_is_known_and_not_read_is_refused_by_its_name() {
        for (text, wanted) in [
            (
                "Connecting to host 10.0.0.1, port 5201\n[  5] local 10.0.0.2 port 4 connected to 10.0.0.1 port 5201\n\
                 [ ID] Interval           Transfer     Bitrate         Retr  Cwnd\n",
                "is iperf3's text",
            ),
            ("Server listening on 5201\n", "run iperf3 with -J"),
            (
                "\nqdisc fq_codel 0: dev eth0 root refcnt 2 limit 10240p\n Sent 5 bytes 1 pkt (dropped 0)\n",
                "tc -s qdisc",
            ),
            (
                "PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.\n",
                "output of ping",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
