//! Products, sizes and prices.
