//! Accrues every window, and whenever a meter has closed.
