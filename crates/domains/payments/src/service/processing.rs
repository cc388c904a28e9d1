//! What a message means, once.
