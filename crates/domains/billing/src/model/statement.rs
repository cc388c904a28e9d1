//! The statement of a month.
