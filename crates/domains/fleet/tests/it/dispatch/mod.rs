//! Tasks handed out, reported and ended, on a real database and by several at once.

mod endings;
mod kit;
mod leases;
mod orders;
