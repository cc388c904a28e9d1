//! Credits for sick hardware.
