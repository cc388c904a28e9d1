//! Something that two records disagree about.
