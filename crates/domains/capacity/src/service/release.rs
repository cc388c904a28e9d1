//! The ways in which an allocation ends.
