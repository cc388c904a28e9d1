//! Outgoing webhooks.
