//! A browser that loads a page.

use std::sync::Arc;

use pathcast_page::{Page, Protocol};
use pathcast_path::reader::{Field, Loader, Read, SIZE, TIME, Table};
use pathcast_path::{Size, Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::kind::{Kind, Next, Pace, Write};
use crate::http::{Browser, Http, Tls};
use crate::transport::Transport;

/// A page, loaded once over HTTP. What is written when is up to a [`PageLoad`](crate::PageLoad).
#[derive(Clone, Debug, PartialEq)]
pub struct WebPage {
    /// What is loaded.
    pub page: Arc<Page>,
    /// How.
    pub http: Http,
}

impl WebPage {
    /// Checks that a transport can carry it.
    pub(super) fn check(&self, transport: &Transport) -> Result<(), String> {
        let protocol = self.http.protocol;
        let (fits, expected) = match protocol.is_over_quic() {
            true => (matches!(transport, Transport::Quic { .. }), "QUIC"),
            false => (transport.is_tcp(), "TCP"),
        };
        let scheme = transport.scheme();
        fits.then_some(()).ok_or_else(|| {
            format!("{scheme} cannot carry a page by {protocol}, expected a scheme of {expected}")
        })
    }

    pub(super) fn connections(&self) -> u32 {
        self.page.connections(self.http.protocol) as u32
    }
}

impl Kind for WebPage {
    const NAME: &'static str = "page";
    const KEYS: &'static [&'static str] = &[
        "page",
        "protocol",
        "tls",
        "certificate",
        "dns",
        "streams",
        "early_data",
        "navigation",
        "network_thread",
        "main_thread",
    ];
    type State = ();

    fn read(_: Field<'_, '_>, table: Table<'_, '_>, load: &mut Loader<'_>) -> Read<Self> {
        let protocol = table.or("protocol", Protocol::Http2, |field| field.parsed("text"))?;
        let defaults = Http::new(protocol);
        let certificate = match table.get("certificate") {
            None => defaults.certificate_bytes,
            Some(field) => field.quantity::<Size>(SIZE)?.as_bytes(),
        };
        let over_quic = protocol.is_over_quic();
        let tls = table.or("tls", defaults.tls, |field| match field.parsed("text")? {
            tls if over_quic && tls != Tls::V1_3 => {
                field.wrong(format_args!("expected 1.3: {protocol} has no other"))
            }
            tls => Ok(tls),
        })?;
        let early_data = table.or("early_data", false, |field| match field.boolean()? {
            true if !over_quic => {
                field.wrong(format_args!("is of h3; browsers send none by {protocol}"))
            }
            early => Ok(early),
        })?;
        let time = |key, otherwise| table.or(key, otherwise, |field| field.quantity::<Span>(TIME));
        Ok(Self {
            page: Arc::new(read_page(table.need("page")?, load)?),
            http: Http {
                tls,
                certificate_bytes: certificate,
                dns: time("dns", defaults.dns)?,
                streams: table.or("streams", defaults.streams, |field| field.parsed("text"))?,
                early_data,
                browser: Browser {
                    navigation: time("navigation", defaults.browser.navigation)?,
                    network_thread: time("network_thread", defaults.browser.network_thread)?,
                    main_thread: time("main_thread", defaults.browser.main_thread)?,
                },
                ..defaults
            },
        })
    }

    fn keys_to_toml(&self) -> String {
        let Http {
            protocol,
            tls,
            certificate_bytes,
            dns,
            streams,
            early_data,
            browser,
        } = self.http;
        let (page, tls, streams) = (self.page.to_inline_toml(), tls.name(), streams.name());
        let early = if early_data {
            ", early_data = true"
        } else {
            ""
        };
        let threads = [
            ("navigation", browser.navigation),
            ("network_thread", browser.network_thread),
            ("main_thread", browser.main_thread),
        ];
        let threads = threads.into_iter().filter(|(_, took)| *took > Span::ZERO);
        let threads: String = threads
            .map(|(key, took)| format!(", {key} = \"{took}\""))
            .collect();
        format!(
            "page = {page}, protocol = \"{protocol}\", tls = \"{tls}\", \
             certificate = \"{certificate_bytes} B\", dns = \"{dns}\", streams = \"{streams}\"{early}{threads}"
        )
    }

    fn pace(&self) -> Pace {
        Pace::Answers
    }

    fn step(&self, (): &mut (), _: Time, _: &mut Xoshiro256PlusPlus) -> (Option<Write>, Next) {
        (None, Next::Waits)
    }
}

/// A page file or a recording by its name, or the page itself.
fn read_page(field: Field<'_, '_>, load: &mut Loader<'_>) -> Read<Page> {
    if let Some(table) = field.as_table() {
        return Page::read(table, field.at());
    }
    let name = field.text("the name of a page file or of a recording")?;
    let content = match load(name) {
        Ok(content) => content,
        Err(why) => return field.wrong(format_args!("{name}: {why}")),
    };
    match pathcast_page::read(&content, name) {
        Ok(mut pages) => Ok(pages.swap_remove(0).page),
        Err(error) => field.wrong(error),
    }
}
