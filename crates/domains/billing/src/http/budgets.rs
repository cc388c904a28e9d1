//! Budgets of projects.

use endpoint::Endpoint;

use crate::Billing;

pub fn endpoints(_: &Billing) -> Vec<Endpoint> {
    Vec::new()
}
