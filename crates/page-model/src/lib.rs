//! How long a page takes over a path, by formulas instead of packets: in microseconds, for decisions at run time.
//!
//! Browser and servers are those of [`PageLoad`]. The transport is ECON's (Ahmed et al., "ECON: Modeling the network to
//! improve application performance", section 4.3): a connection sends a window in each round trip; windows follow the
//! congestion control's law; a packet is lost with the probability that a curve p(cwnd) gives. Connections share the
//! link, which sends in order. The paper divides objects over connections by hand; here the browser does.
//!
//! ```
//! use std::sync::Arc;
//!
//! use pathcast_page_model::{LossCurve, Model, load};
//! use pathcast_path::Span;
//! use pathcast_scenario::{Http, Page, Protocol};
//!
//! let page = "[[resources]]\nurl = 'https://example.org/'\nsize = '300 kB'\n";
//! let page = Arc::new(Page::parse(page, "page.toml")?);
//! let model = Model::new("cubic", Span::from_millis(50), Some(20e6), LossCurve::constant(0.001));
//! let loaded = load(&page, Http::new(Protocol::Http2), &model, 1);
//! assert!((200.0..600.0).contains(&loaded.load_ms.unwrap()));
//! # Ok::<(), pathcast_path::PathError>(())
//! ```

#![deny(clippy::disallowed_methods)] // the same run on every machine

mod connection;
mod engine;
mod model;

#[cfg(test)]
mod tests;

pub use engine::{Loaded, load};
pub use model::{Law, LossCurve, Model};

#[cfg(doc)]
use pathcast_scenario::PageLoad;
