//! Products, sizes, prices.
