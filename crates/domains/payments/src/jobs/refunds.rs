//! Sends refunds to the provider.
