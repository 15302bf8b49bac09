//! Origins that a recording shows one connection to serve (RFC 9113, section 9.1.1).

use std::collections::{BTreeMap, HashMap};

/// Who answered a request: its origin, the version of HTTP, and the connection as the recording names it.
pub struct Answered<'a> {
    pub origin: &'a str,
    pub protocol: Option<&'a str>,
    pub connection: Option<&'a str>,
}

/// Groups of at least two origins, in the order in which the browser met them.
pub fn coalesced<'a>(entries: impl Iterator<Item = Answered<'a>>) -> Vec<Vec<String>> {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut origins = Vec::new();
    // the first origin of each connection, and to which origin each other one belongs
    let mut first: HashMap<&str, usize> = HashMap::new();
    let mut belongs: Vec<usize> = Vec::new();
    for entry in entries {
        let Some(connection) = shared(&entry) else {
            continue;
        };
        let number = *numbers.entry(entry.origin).or_insert_with(|| {
            origins.push(entry.origin);
            belongs.push(origins.len() - 1);
            origins.len() - 1
        });
        let first = *first.entry(connection).or_insert(number);
        let (a, b) = (root(&mut belongs, first), root(&mut belongs, number));
        belongs[a.max(b)] = a.min(b);
    }
    let mut groups: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (number, origin) in origins.iter().enumerate() {
        let group = root(&mut belongs, number);
        groups.entry(group).or_default().push((*origin).to_string());
    }
    groups.into_values().filter(|one| one.len() > 1).collect()
}

/// The name of a connection that may serve several origins.
fn shared<'a>(entry: &Answered<'a>) -> Option<&'a str> {
    let protocol = entry.protocol?.to_ascii_lowercase();
    let many = protocol.starts_with("h2")
        || protocol.starts_with("h3")
        || protocol.starts_with("http/2")
        || protocol.starts_with("http/3");
    let connection = entry.connection?;
    // Firefox writes the port there, and others 0 where they do not know
    let port = entry.origin.rsplit(':').next();
    let is_port = port == Some(connection) || ["0", "80", "443"].contains(&connection);
    (many && !is_port).then_some(connection)
}

fn root(belongs: &mut [usize], mut number: usize) -> usize {
    while belongs[number] != number {
        belongs[number] = belongs[belongs[number]];
        number = belongs[number];
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(entries: &[(&str, &str, &str)]) -> Vec<Vec<String>> {
        coalesced(
            entries
                .iter()
                .map(|&(origin, protocol, connection)| Answered {
                    origin,
                    protocol: Some(protocol),
                    connection: Some(connection),
                }),
        )
    }

    #[test]
    fn what_shares_a_connection_of_http_2_is_a_group() {
        let found = groups(&[
            ("https://a.org", "h2", "11"),
            ("https://b.org", "HTTP/2.0", "12"),
            ("https://c.org", "h2", "11"),
            ("https://d.org", "h3", "13"),
            ("https://e.org", "h3", "13"),
            // two connections of one origin join their groups
            ("https://c.org", "h2", "14"),
            ("https://f.org", "h2", "14"),
        ]);
        assert_eq!(
            found,
            [
                vec!["https://a.org", "https://c.org", "https://f.org"],
                vec!["https://d.org", "https://e.org"]
            ]
        );
    }

    #[test]
    fn ports_and_connections_of_http_1_make_no_group() {
        let found = groups(&[
            ("https://a.org", "h2", "443"),
            ("https://b.org", "h2", "443"),
            ("https://c.org:8443", "h2", "8443"),
            ("https://d.org:8443", "h2", "8443"),
            ("http://e.org", "http/1.1", "7"),
            ("http://f.org", "http/1.1", "7"),
            ("https://g.org", "h2", "0"),
            ("https://h.org", "h2", "0"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
