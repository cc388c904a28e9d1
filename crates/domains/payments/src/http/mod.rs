//! Endpoint declarations and handlers, one file per resource.

mod disputes;
mod payments;
mod refunds;
mod topups;

use endpoint::Endpoint;

use crate::Payments;

pub fn endpoints(payments: &Payments) -> Vec<Endpoint> {
    [
        disputes::endpoints(payments),
        payments::endpoints(payments),
        refunds::endpoints(payments),
        topups::endpoints(payments),
    ]
    .into_iter()
    .flatten()
    .collect()
}
