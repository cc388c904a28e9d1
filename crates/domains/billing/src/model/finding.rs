//! Where books and world disagree.
