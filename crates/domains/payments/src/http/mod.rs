//! Endpoint declarations and handlers, one file per resource.

mod disputes;
mod messages;
mod payments;
mod reconcile;
mod refunds;
mod topups;

use endpoint::Endpoint;

use crate::Payments;

pub fn endpoints(payments: &Payments) -> Vec<Endpoint> {
    [
        topups::endpoints(payments),
        payments::endpoints(payments),
        refunds::endpoints(payments),
        disputes::endpoints(payments),
        messages::endpoints(payments),
        reconcile::endpoints(payments),
    ]
    .into_iter()
    .flatten()
    .collect()
}
