//! Taking in messages of the provider.
