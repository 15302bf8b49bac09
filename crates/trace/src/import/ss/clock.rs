//! Time formats that people put next to the output of ss.

/// Reads times in the formats that people put between samples.
#[derive(Default)]
pub(super) struct Clock {
    /// The last time found.
    pub now_s: Option<f64>,
}

impl Clock {
    /// Returns the time at the start of a line, if there is one, and the rest of the line.
    pub fn split<'a>(&self, line: &'a str) -> (Option<f64>, &'a str) {
        let mut trimmed = line.trim_start_matches(['#', ' ', '[']);
        // as flent and others write it
        for prefix in ["Time:", "time:", "TIME:", "timestamp:", "Timestamp:"] {
            trimmed = trimmed.strip_prefix(prefix).unwrap_or(trimmed);
        }
        let trimmed = trimmed.trim_start();
        let (word, rest) = match trimmed.split_once([' ', '\t']) {
            Some((word, rest)) => (word, rest),
            None => (trimmed, ""),
        };
        let word = word.trim_end_matches([']', ':', ',']);
        // whole seconds since 1970, or with a decimal point; a short number is a queue's length
        let long = word.len() >= 10 && word.bytes().all(|b| b.is_ascii_digit());
        if (long || word.contains('.'))
            && let Ok(time_s) = word.parse::<f64>()
            && time_s.is_finite()
        {
            // `date +%s%3N`, `%s%6N` and `%s%N` have no decimal point
            let unit = match word.len() {
                13 if long => 1e3,
                16 if long => 1e6,
                19 if long => 1e9,
                _ => 1.0,
            };
            return (Some(time_s / unit), rest);
        }
        if let Some(time_s) = self.of_day(word) {
            return (Some(time_s), rest);
        }
        // 2026-11-22T00:52:11.5+00:00, or the same in two words; the zone does not matter
        let (date, time) = word.split_once('T').unwrap_or((word, ""));
        if let Some(days) = days(date) {
            let (time, rest) = match (time, rest.split_once([' ', '\t'])) {
                ("", Some((time, rest))) => (time, rest),
                ("", None) => (rest, ""),
                (time, _) => (time, rest),
            };
            let time = time.split(['Z', '+', ',']).next().unwrap_or("");
            let time = time.split('-').next().unwrap_or("");
            return match seconds_of_day(time) {
                Some(seconds) => (Some(days as f64 * 86_400.0 + seconds), rest),
                None => (None, line),
            };
        }
        // as `date` prints it: Sun Nov 22 00:52:11 UTC 2026, or Sun Nov 22 12:52:11 AM UTC 2026
        let mut words: Vec<&str> = trimmed.split_whitespace().collect();
        let mut half = 0.0;
        if words.len() == 7 && ["AM", "PM"].contains(&words[4]) {
            half = if words.remove(4) == "PM" {
                43_200.0
            } else {
                0.0
            };
        } else if words.len() == 6 {
            half = -1.0;
        }
        if let [_, month, day, time, _, year] = words[..]
            && let Some(month) = MONTHS.iter().position(|name| *name == month)
            && let Some(days) = days(&format!("{year}-{}-{day}", month + 1))
            && let Some(seconds) = seconds_of_day(time)
        {
            // 12 o'clock begins each half of the day
            let seconds = if half < 0.0 {
                seconds
            } else {
                seconds % 43_200.0 + half
            };
            return (Some(days as f64 * 86_400.0 + seconds), "");
        }
        (None, line)
    }

    /// Returns the time at the end of a line, if there is one, and the text before it.
    pub fn split_end<'a>(&self, line: &'a str) -> (Option<f64>, &'a str) {
        let line = line.trim_end();
        // `date` prints the longest format, 7 words
        let mut starts: Vec<usize> = Vec::new();
        let mut end = line.len();
        while let Some(at) = line[..end].rfind([' ', '\t'])
            && starts.len() < 7
        {
            starts.push(at + 1);
            end = at;
        }
        for start in starts.into_iter().rev() {
            let text = &line[start..];
            // a time begins with a digit or a weekday; the words of ss have colons or units
            if let (Some(time_s), "") = self.split(text)
                && (text.contains([':', '-']) || time_s >= 1e8)
            {
                return (Some(time_s), &line[..start]);
            }
        }
        (None, line)
    }

    /// HH:MM:SS, which starts over at midnight.
    fn of_day(&self, word: &str) -> Option<f64> {
        let seconds = seconds_of_day(word)?;
        let last_s = self.now_s.unwrap_or(seconds);
        let days = ((last_s - seconds) / 86_400.0 + 0.5).floor().max(0.0);
        Some(seconds + days * 86_400.0)
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

fn seconds_of_day(text: &str) -> Option<f64> {
    let mut parts = text.splitn(3, ':');
    let hours: u32 = parts.next()?.parse().ok().filter(|h| *h < 24)?;
    let minutes: u32 = parts.next()?.parse().ok().filter(|m| *m < 60)?;
    let seconds: f64 = parts.next()?.parse().ok()?;
    let sane = (0.0..61.0).contains(&seconds);
    sane.then_some(f64::from(hours * 3600 + minutes * 60) + seconds)
}

/// Days since 1970 of YYYY-MM-DD.
fn days(date: &str) -> Option<i64> {
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // the year begins in March, so that the leap day is its last
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    Some(year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_the_usual_forms() {
        let clock = Clock::default();
        for (line, wanted) in [
            ("1700000000", Some(1.7e9)),
            ("1700000000.5 ESTAB 0", Some(1.7e9 + 0.5)),
            ("# 12.5", Some(12.5)),
            ("Time: 1700000000.5", Some(1.7e9 + 0.5)),
            ("time:1700000000500000000", Some(1.7e9 + 0.5)),
            ("1700000000500", Some(1.7e9 + 0.5)),
            ("00:00:10.5", Some(10.5)),
            ("2026-11-22T00:52:11.5Z", Some(1_795_308_731.5)),
            ("2026-11-22 00:52:11,", Some(1_795_308_731.0)),
            ("Sun Nov 22 00:52:11 UTC 2026", Some(1_795_308_731.0)),
            ("Sun Nov 22 12:52:11 AM UTC 2026", Some(1_795_308_731.0)),
            ("Sun Nov 22 12:52:11 PM UTC 2026", Some(1_795_351_931.0)),
            ("ESTAB 0 0 1.2.3.4:5 1.2.3.4:6", None),
            ("0 0 1.2.3.4:5 1.2.3.4:6", None),
            ("\t cubic cwnd:10", None),
        ] {
            assert_eq!(clock.split(line).0, wanted, "{line}");
        }
        let late = Clock {
            now_s: Some(86_399.0),
        };
        assert_eq!(late.split("00:00:01").0, Some(86_401.0));
    }

    #[test]
    fn a_time_may_end_a_line() {
        let clock = Clock::default();
        for (line, wanted, rest) in [
            ("\t cubic cwnd:10 send 2Mbps 00:00:10.5 ", Some(10.5), 4),
            (
                "\t cubic cwnd:10 send 2Mbps 1700000000.5",
                Some(1.7e9 + 0.5),
                4,
            ),
            (
                "\t cubic cwnd:10 Sun Nov 22 00:52:11 UTC 2026",
                Some(1_795_308_731.0),
                2,
            ),
            (
                "\t cubic cwnd:10 2026-11-22 00:52:11",
                Some(1_795_308_731.0),
                2,
            ),
            ("\t cubic cwnd:10 minrtt:0.026", None, 3),
            ("\t cubic cwnd:10 rcv_space 1.5", None, 4),
        ] {
            let (time_s, before) = clock.split_end(line);
            assert_eq!(time_s, wanted, "{line}");
            assert_eq!(before.split_whitespace().count(), rest, "{line}");
        }
    }
}
