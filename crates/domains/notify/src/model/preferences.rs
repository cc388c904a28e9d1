//! What a person wants to be told, and how.
