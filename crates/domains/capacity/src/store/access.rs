//! Access grants and key sets.
