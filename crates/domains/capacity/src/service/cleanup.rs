//! Slots that could not be cleaned, and how they come back.
