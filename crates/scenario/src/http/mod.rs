//! Pages over HTTP: a browser, the servers of a page's origins, and the connections between them.
//!
//! [`PageLoad`] is all of them for one load. Like an [`Application`](crate::Application) it knows no sockets, packets
//! or clocks. A backend carries each [`Message`](crate::Message) over the connection that it names, and hands it back
//! when it is whole at the other end. Servers write a record at a time, when the transport has room, so that what is
//! most urgent goes first.

mod graph;
mod load;
mod server;
mod settings;

#[cfg(test)]
mod tests;

pub use load::{Exchange, PageLoad, Times};
pub use settings::{Browser, Http, StreamOrder, Tls};
