//! Bodies of requests: their type, packing, size and time.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};

use super::problem;
use crate::config::Limits;
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

/// The whole body, within the limits of size and time.
pub async fn whole(body: Body, limits: &Limits) -> Result<Bytes, Response> {
    let limited = Limited::new(body, limits.body_bytes).collect();
    match tokio::time::timeout(Duration::from_secs_f64(limits.body_timeout_s), limited).await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!(
                "the body has more than {} bytes, limits.body_bytes; send several",
                limits.body_bytes
            );
            Err(problem(StatusCode::PAYLOAD_TOO_LARGE, &message))
        }
        Ok(Err(error)) => {
            let message = format!("the body cannot be read: {error}");
            Err(problem(StatusCode::BAD_REQUEST, &message))
        }
        Err(_) => {
            let message = format!(
                "the body took longer than {} s, limits.body_timeout_s",
                limits.body_timeout_s
            );
            Err(problem(StatusCode::REQUEST_TIMEOUT, &message))
        }
    }
}
