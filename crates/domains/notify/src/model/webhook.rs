//! Outgoing webhooks and their signatures.
