//! Why something can or cannot be launched.
