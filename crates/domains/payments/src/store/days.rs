//! Days that were reconciled.
