//! What the provider says, in its own words.
