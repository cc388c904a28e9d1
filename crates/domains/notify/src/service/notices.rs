//! Notifications in the product.
