//! Where records disagree.
