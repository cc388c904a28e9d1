//! What nodes could take: counted right whatever happens, found in the order of the packing rule, without a scan and
//! without anybody waiting in a circle.

mod candidates;
mod counts;
mod kit;
mod plans;
mod steps;
