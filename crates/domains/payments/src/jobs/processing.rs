//! Processes messages that were taken in.
