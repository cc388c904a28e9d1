//! Daily signed heads of the chains.
