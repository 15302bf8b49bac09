//! Why a service cannot listen or serve.

use thiserror::Error;

/// What is wrong with the options of a service.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct WebError(pub String);
