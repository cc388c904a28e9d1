//! How allocations end, are operated, and who may log in: on a real database, without nodes.

mod access;
mod cleanup;
mod interleaving;
mod operating;
mod world;
