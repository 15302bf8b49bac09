//! Bodies of requests: their type and packing.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use pathcast_web::problem;

use crate::ingest::Packing;

/// What a body holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Lines of JSON.
    Lines,
    /// A trace as Parquet.
    Parquet,
}

/// The packing of a body by its header.
pub fn packing(headers: &HeaderMap) -> Result<Packing, Response> {
    let name = headers
        .get(header::CONTENT_ENCODING)
        .map_or("", |value| value.to_str().unwrap_or("?"));
    Packing::of(&name.to_ascii_lowercase()).ok_or_else(|| {
        let message = format!("Content-Encoding is {name:?}, expected gzip or zstd, or none");
        problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, &message)
    })
}

/// The kind of a body by its header.
pub fn kind(headers: &HeaderMap) -> Result<Kind, Response> {
    let name = headers
        .get(header::CONTENT_TYPE)
        .map_or("", |value| value.to_str().unwrap_or("?"));
    let plain = name
        .split(';')
        .next()
        .unwrap_or("")
        .trim()
        .to_ascii_lowercase();
    match plain.as_str() {
        "application/x-ndjson" | "application/jsonl" | "application/json" => Ok(Kind::Lines),
        "application/vnd.apache.parquet" | "application/x-parquet" => Ok(Kind::Parquet),
        _ => {
            let message = format!(
                "Content-Type is {name:?}, expected application/x-ndjson or application/vnd.apache.parquet"
            );
            Err(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, &message))
        }
    }
}
