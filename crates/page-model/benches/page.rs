//! One decision between HTTP/1.1 and HTTP/2 by the model: a page of 2.5 MB, several draws of its losses.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use pathcast_page_model::{LossCurve, Model, load};
use pathcast_path::Span;
use pathcast_scenario::{Http, Page, Protocol};

/// Draws of the losses for one decision.
const DRAWS: u64 = 9;

fn decisions(criterion: &mut Criterion) {
    let images: String = (0..125)
        .map(|number| {
            format!(
                "[[resources]]\nurl = 'https://a.org/{number}'\ntype = 'image'\nsize = '20 kB'\n"
            )
        })
        .collect();
    let text = format!("[[resources]]\nurl = 'https://a.org/'\nsize = '30 kB'\n{images}");
    let page = Arc::new(Page::parse(&text, "page.toml").expect("it is a page"));
    for loss in [0.0, 0.01] {
        let rtt = Span::from_millis(50);
        let model = Model::new("cubic", rtt, Some(20e6), LossCurve::constant(loss));
        for protocol in Protocol::ALL {
            criterion.bench_function(&format!("{protocol}, loss {loss}, one load"), |bencher| {
                bencher.iter(|| black_box(load(&page, Http::new(protocol), &model, 1)));
            });
        }
        criterion.bench_function(&format!("decision, loss {loss}"), |bencher| {
            bencher.iter(|| {
                for protocol in Protocol::ALL {
                    for seed in 0..DRAWS {
                        black_box(load(&page, Http::new(protocol), &model, seed));
                    }
                }
            });
        });
    }
}

criterion_group!(benches, decisions);
criterion_main!(benches);
