//! Postings that administrators ask for.
