//! Who is to be told.
