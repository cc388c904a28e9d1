//! Products, prices and what is free, on a real database.

mod availability;
mod http;
mod prices;
mod products;

use super::consistency::kit;
