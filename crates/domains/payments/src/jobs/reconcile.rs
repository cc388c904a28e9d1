//! Reconciles each day with the provider.
