//! Adjustments, and their second approver.
