//! Tasks handed out, reported and ended, on a real database and by several at once.

mod claims;
mod endings;
mod kit;
mod orders;
