//! Which addresses a webhook may go to.
