//! Bodies of requests, and responses of JSON.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};

use crate::config::Limits;

/// A response of JSON.
pub fn json(status: StatusCode, body: Vec<u8>) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], body).into_response()
}

/// What a page may do: nothing but ask its own service.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A page for browsers that has no other files; its scripts and styles are within.
pub fn page(html: &'static str) -> Response {
    let policy = HeaderValue::from_static(PAGE_POLICY);
    let as_said = HeaderValue::from_static("nosniff");
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, as_said),
    ];
    (headers, Html(html)).into_response()
}

/// A response that says what is wrong.
pub fn problem(status: StatusCode, message: &str) -> Response {
    let text = serde_json::json!({ "error": message });
    json(status, text.to_string().into_bytes())
}

/// The whole body, within the limits of size and time.
///
/// # Errors
/// The response that says what is wrong: 400, 408 or 413.
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
