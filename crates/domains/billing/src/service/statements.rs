//! Monthly statements.
