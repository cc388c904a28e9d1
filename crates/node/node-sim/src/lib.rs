//! Thousands of simulated nodes in one process, on the real protocol.
