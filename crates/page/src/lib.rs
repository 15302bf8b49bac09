//! A web page as a graph: the resources that a browser fetches and the tasks that it computes, each with what
//! causes it.
//!
//! [`Page`] is the graph, with a documented file format (TOML). [`read`] makes pages of page files and of recordings:
//! HTTP archives and logs of the DevTools protocol ([`har`]), Chrome traces, and graphs of EPLOAD and WProfX. Pure: it
//! gets text and returns values.
//!
//! ```
//! use pathcast_page::{Page, Protocol};
//!
//! let text = "
//! [[resources]]
//! url = 'https://example.org/'
//! size = '31 kB'
//!
//! [[resources]]
//! url = 'https://example.org/style.css'
//! size = '9 kB'
//! after = { of = 'https://example.org/', at = 0.1 }
//! ";
//! let page = Page::parse(text, "example.toml")?;
//! assert_eq!(page.resources.len(), 2);
//! assert_eq!(page.connections(Protocol::Http1), 1 + 1);
//! # Ok::<(), pathcast_path::PathError>(())
//! ```

#![deny(clippy::disallowed_methods)] // the same run on every machine

mod chrome_trace;
mod compute;
mod file;
mod formats;
pub mod har;
mod page;
mod protocol;
mod wprof;

pub use file::read;
pub use page::{Cause, Kind, Node, Page, PageError, Priority, Resource, Task};
pub use protocol::{Protocol, UnknownProtocol};
