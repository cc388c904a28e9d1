//! The node listener: mutual TLS, long polls, reports.
