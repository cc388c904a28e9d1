//! Records that disagree on purpose are found, records that agree are not, and looking changes nothing.

mod found;
mod healthy;
pub mod kit;
mod resumed;
