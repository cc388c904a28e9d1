//! Events that people are told of.
