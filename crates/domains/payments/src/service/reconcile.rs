//! Our books against the provider's.
