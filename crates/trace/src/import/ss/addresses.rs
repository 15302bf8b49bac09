//! Finds the addresses of a socket in a line of ss.

const STATES: [&str; 13] = [
    "ESTAB",
    "SYN-SENT",
    "SYN-RECV",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "TIME-WAIT",
    "UNCONN",
    "CLOSE-WAIT",
    "LAST-ACK",
    "LISTEN",
    "CLOSING",
    "CLOSED",
    "BOUND",
];
/// What ss without `-t` prints first for sockets other than TCP's.
pub(super) const OTHER_NETIDS: [&str; 12] = [
    "udp", "raw", "u_str", "u_dgr", "u_seq", "nl", "p_raw", "p_dgr", "icmp6", "v_str", "sctp",
    "xdp",
];

/// Returns the position of the first address in a socket's line. Before it come the socket kind
/// (without `-t`), the state (unless the query had one), and two queue lengths.
pub(super) fn addresses_at(words: &[&str]) -> Option<usize> {
    let queues = |at: usize| {
        words
            .get(at..at + 2)
            .is_some_and(|w| w.iter().all(|w| w.parse::<u64>().is_ok()))
    };
    let state = |at: usize| words.get(at).is_some_and(|w| STATES.contains(w));
    let kind = |w: &&str| OTHER_NETIDS.contains(w) || ["tcp", "mptcp"].contains(w);
    match () {
        () if state(0) && queues(1) => Some(3),
        () if state(1) && queues(2) => Some(4),
        () if words.first().is_some_and(kind) && queues(1) => Some(3),
        () if queues(0) => Some(2),
        () => None,
    }
}
