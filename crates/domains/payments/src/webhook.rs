//! The door for the provider's messages, on the public listener of processes with the role webhook-worker.

use axum::Router;

use crate::Payments;

pub fn router(_: Payments) -> Router {
    Router::new()
}
