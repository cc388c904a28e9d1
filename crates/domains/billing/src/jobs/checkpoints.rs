//! Signs the heads of the chains once a day.
