//! Sends what is due.
