//! Messages on their way.
