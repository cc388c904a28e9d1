//! Endpoint declarations and handlers, one file per resource.

mod adjustments;
mod balance;
mod budgets;
mod findings;
mod ledger;
mod spend_caps;
mod statements;
mod usage;

use endpoint::Endpoint;

use crate::Billing;

pub fn endpoints(billing: &Billing) -> Vec<Endpoint> {
    [
        adjustments::endpoints(billing),
        balance::endpoints(billing),
        budgets::endpoints(billing),
        findings::endpoints(billing),
        ledger::endpoints(billing),
        spend_caps::endpoints(billing),
        statements::endpoints(billing),
        usage::endpoints(billing),
    ]
    .into_iter()
    .flatten()
    .collect()
}
