//! Placement over what the database finds.
