//! Endpoint declarations and handlers, one file per resource.

mod deliveries;
mod notices;
mod preferences;
mod webhooks;

use endpoint::Endpoint;

use crate::Notify;

pub fn endpoints(notify: &Notify) -> Vec<Endpoint> {
    [
        notices::endpoints(notify),
        preferences::endpoints(notify),
        webhooks::endpoints(notify),
        deliveries::endpoints(notify),
    ]
    .into_iter()
    .flatten()
    .collect()
}
