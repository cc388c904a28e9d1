//! The complete desired key set of an allocation.
