//! Recognizes, from their first bytes, the formats that resemble others.

use super::Format;

/// Bytes at the start of a file that detection examines.
pub(crate) const HEAD_BYTES: usize = 64 << 10;

/// Returns the format of a file that begins with `head`, among the known formats that claim no file
/// themselves.
pub(crate) fn detect(head: &[u8]) -> Option<Format> {
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with(['{', '\u{1e}']) {
        return json(text);
    }
    // a terminal may show a pressed key, and a program a warning, before the JSON
    let at = text.find('{').unwrap_or(usize::MAX);
    if at <= 256 && json(&text[at..]) == Some(Format::Iperf3) {
        return Some(Format::Iperf3);
    }
    // the oldest data stands in scripts; the reader reports that
    let script = ["var ", "let ", "const "];
    if script.iter().any(|word| text.starts_with(word)) && text.contains("qlog_version") {
        return Some(Format::Qlog);
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let found = lines.clone().take(200).find_map(line);
    // Pantheon writes a header alone when a run fails
    let init = |line: &str| line.starts_with("# init timestamp:") && line.contains('.');
    found
        .or_else(|| lines.clone().all(init).then_some(Format::PantheonLog))
        .filter(|_| !text.trim().is_empty())
}

fn json(text: &str) -> Option<Format> {
    let has = |key: &str| text.contains(key);
    if has("\"qlog_version\"")
        || has("\"qlog_format\"")
        || has("urn:ietf:params:qlog")
        || (has("metrics_updated\"") && has("\"time\""))
        || (has(":packet_sent\"") && has("\"time\""))
    {
        return Some(Format::Qlog);
    }
    if has("\"FLENT_VERSION\"") || has("\"NETPERF_WRAPPER_VERSION\"") || has("\"raw_values\"") {
        return Some(Format::Flent);
    }
    let of_ndt7 = has("\"TCPInfo\"") || has("\"AppInfo\"") || has("\"Key\"");
    if has("\"ServerMeasurements\"")
        || has("\"ClientMeasurements\"")
        || (of_ndt7 && has("\"Test\""))
    {
        return Some(Format::Ndt7);
    }
    let event = has("\"event\"") && (has("\"interval\"") || has("\"start\""));
    let document = has("\"intervals\"") || (has("\"start\"") && has("\"connected\""));
    if event || document {
        return Some(Format::Iperf3);
    }
    (has("\"tput\"") || (has("\"all\"") && has("\"loss\""))).then_some(Format::PantheonPerf)
}

/// The format that a single line reveals.
fn line(line: &str) -> Option<Format> {
    let words: Vec<&str> = line.split_whitespace().take(16).collect();
    let number = |i: usize| words.get(i).is_some_and(|word| word.parse::<f64>().is_ok());
    if line.starts_with("# mahimahi mm-link") || line.starts_with("# base timestamp:") {
        return Some(Format::MahimahiLog);
    }
    if line.starts_with('#') {
        return None; // a comment whose next line may be clearer
    }
    if line.contains(" tcp_probe: ") || line.contains(" tcp:tcp_probe: ") {
        return Some(Format::TcpProbe);
    }
    if words.len() >= 10
        && number(0)
        && words[1].contains(':')
        && words[2].contains(':')
        && words[4].starts_with("0x")
    {
        return Some(Format::TcpProbe);
    }
    if number(0) && words.len() >= 3 && ["+", "-", "#", "d"].contains(&words[1]) {
        return Some(match words[..] {
            [_, "-", _, "-", _] => Format::PantheonEnd,
            // both have opportunities; mm-link counts in whole milliseconds
            [_, "+" | "-" | "#", ..] if words[0].contains('.') => Format::PantheonLog,
            _ => Format::MahimahiLog,
        });
    }
    if line
        .split_whitespace()
        .any(|word| word.starts_with("cwnd:"))
        || (line.contains("Recv-Q") && line.contains("Send-Q"))
    {
        return Some(Format::Ss);
    }
    if line.contains("time_s") || line.contains("cwnd_packets") || csv_header(line) {
        return Some(Format::Csv);
    }
    if words.len() == 1 && words[0].len() <= 12 && words[0].bytes().all(|b| b.is_ascii_digit()) {
        return Some(Format::MahimahiTrace);
    }
    None
}

/// Whether the line is a table header: names between commas. The reader reports missing columns.
fn csv_header(line: &str) -> bool {
    line.contains(',')
        && line.split(',').all(|cell| {
            cell.len() <= 40
                && cell.starts_with(|c: char| c.is_ascii_alphabetic())
                && cell
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_content() {
        for (head, wanted) in [
            (&b"time_s,cwnd_packets\n"[..], Some(Format::Csv)),
            (b"a,b\n1,2\n", Some(Format::Csv)),
            (b"{\"start\": {\"connected\": []}}", Some(Format::Iperf3)),
            (b"^C{\"start\": {\"connected\": []}}", Some(Format::Iperf3)),
            (b"{\"event\":\"start\",\"data\":{}}", Some(Format::Iperf3)),
            (
                b"{\"metadata\": {\"FLENT_VERSION\": \"2.1\"}}",
                Some(Format::Flent),
            ),
            (
                b"{\"Key\":\"starting\",\"Value\":{\"Test\":\"download\"}}",
                Some(Format::Ndt7),
            ),
            (
                b"{\"ClientIP\":\"::1\",\"Download\":{\"ServerMeasurements\":[]}}",
                Some(Format::Ndt7),
            ),
            (b"\x1e{\"qlog_version\":\"0.3\"}\n", Some(Format::Qlog)),
            (
                b"{\"bbr\":{\"1\":{\"all\":{\"tput\":1}}}}",
                Some(Format::PantheonPerf),
            ),
            (
                b"# tracer: nop\n#\n  x-1 [000] ..s. 1.5: tcp_probe: family=AF_INET",
                Some(Format::TcpProbe),
            ),
            (
                b"0.1 10.0.0.1:5 10.0.0.2:6 32 0x3d9 0x3d8 10 100 200 23",
                Some(Format::TcpProbe),
            ),
            (
                b"swapper 0 [000] 1.5: tcp:tcp_probe: family=AF_INET",
                Some(Format::TcpProbe),
            ),
            (b"State Recv-Q Send-Q Local\n", Some(Format::Ss)),
            (
                b"1700000000.5\nESTAB 0 0 1.1.1.1:1 2.2.2.2:2\n\t cubic cwnd:10",
                Some(Format::Ss),
            ),
            (
                b"ESTAB 0 0 1.1.1.1:1 2.2.2.2:2 a b c d e f g h i j k l m n cubic cwnd:10",
                Some(Format::Ss),
            ),
            (b"# mahimahi mm-link (uplink)\n", Some(Format::MahimahiLog)),
            (b"# base timestamp: 12\n", Some(Format::MahimahiLog)),
            (b"12 + 1504\n", Some(Format::MahimahiLog)),
            (
                b"# init timestamp: 15.5\n12.125 + 1500 1\n",
                Some(Format::PantheonLog),
            ),
            (b"# init timestamp: 15.5\n", Some(Format::PantheonLog)),
            (
                b"# init timestamp: 15.5\n1.000 # 1500\n",
                Some(Format::PantheonLog),
            ),
            (b"1536.000 # 1500\n", Some(Format::PantheonLog)),
            (b"1536 # 1504\n", Some(Format::MahimahiLog)),
            (b"# comment\n", None),
            (
                b"# x ingress: 15.5\n12.125 - 5 - 1500\n",
                Some(Format::PantheonEnd),
            ),
            (b"1\n2\n", Some(Format::MahimahiTrace)),
            (b"hello, there", None),
            (b"", None),
            (b"{}", None),
            (b"\xff\xfe\x00", None),
        ] {
            let name = String::from_utf8_lossy(head);
            assert_eq!(detect(head), wanted, "{name:?}");
        }
    }
}
