//! Signed heads of chains.
