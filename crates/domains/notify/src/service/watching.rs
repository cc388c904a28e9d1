//! Streams of notifications.
