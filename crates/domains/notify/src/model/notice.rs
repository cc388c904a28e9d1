//! What people are told, and in which words.
