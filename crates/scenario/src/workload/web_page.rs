//! A browser that loads a page.

use std::sync::Arc;

use pathcast_page::{Page, Protocol};
use pathcast_path::reader::{Field, Loader, Read, SIZE, TIME, Table};
use pathcast_path::{Size, Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::kind::{Kind, Next, Pace, Write};
use crate::http::Http;

/// A page, loaded once over HTTP. What is written when is up to a [`PageLoad`](crate::PageLoad).
#[derive(Clone, Debug, PartialEq)]
pub struct WebPage {
    /// What is loaded.
    pub page: Arc<Page>,
    /// How.
    pub http: Http,
}

impl WebPage {
    pub(super) fn connections(&self) -> u32 {
        self.page.connections(self.http.protocol) as u32
    }
}

impl Kind for WebPage {
    const NAME: &'static str = "page";
    const KEYS: &'static [&'static str] =
        &["page", "protocol", "tls", "certificate", "dns", "streams"];
    type State = ();

    fn read(_: Field<'_, '_>, table: Table<'_, '_>, load: &mut Loader<'_>) -> Read<Self> {
        let protocol = table.or("protocol", Protocol::Http2, |field| field.parsed("text"))?;
        let defaults = Http::new(protocol);
        let certificate = match table.get("certificate") {
            None => defaults.certificate_bytes,
            Some(field) => field.quantity::<Size>(SIZE)?.as_bytes(),
        };
        Ok(Self {
            page: Arc::new(read_page(table.need("page")?, load)?),
            http: Http {
                tls: table.or("tls", defaults.tls, |field| field.parsed("text"))?,
                certificate_bytes: certificate,
                dns: table.or("dns", defaults.dns, |field| field.quantity::<Span>(TIME))?,
                streams: table.or("streams", defaults.streams, |field| field.parsed("text"))?,
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
        } = self.http;
        let (page, tls, streams) = (self.page.to_inline_toml(), tls.name(), streams.name());
        format!(
            "page = {page}, protocol = \"{protocol}\", tls = \"{tls}\", \
             certificate = \"{certificate_bytes} B\", dns = \"{dns}\", streams = \"{streams}\""
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
