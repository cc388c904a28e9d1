//! Messages of the provider, as they came.
