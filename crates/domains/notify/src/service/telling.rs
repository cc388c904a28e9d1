//! From an event to notifications and messages.
