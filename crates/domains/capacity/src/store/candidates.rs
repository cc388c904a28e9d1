//! What the fleet could take.
