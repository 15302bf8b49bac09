//! Decisions for live traffic over HTTP.
