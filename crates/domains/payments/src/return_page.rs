//! `/billing/topups/{topup_id}`: where the provider sends a person back to after a checkout.
//!
//! Nobody is signed in here: the browser that paid need not be the one that signed in, and the person who paid need not
//! have an account. The page therefore shows only what the address proves. It holds the id of the top-up, which has 74
//! random bits and which only the provider and members of the organization who see its money know; for that the page
//! tells the amount and what became of it, which whoever paid knows anyway. It names no organization, no balance and no
//! person, and it does not lead to the checkout, whose address is given to members only.
//!
//! What became of the top-up is read from our records. The parameter `result` says by which button the person left the
//! checkout; it chooses between two wordings of a top-up that is not paid yet, and is never taken for a payment.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, Query, State, rejection::QueryRejection},
    response::Response,
    routing::get,
};
use http::{HeaderValue, StatusCode, header};
use kernel::{Failure, ids::TopupId, money::money};
use pages::{Notice, Page, Refresh, Section};
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::{
    Payments,
    model::topup::{CheckoutOutcome, TopupState},
    service::topups::checkout_outcome,
};

/// Anybody can ask for pages: so many ask the database at once, and others wait.
const LOOKUPS_AT_ONCE: usize = 4;
const LOOKUP_WITHIN: Duration = Duration::from_secs(5);
/// A page that waits for a payment is loaded again so often, then the person decides.
const MOST_REFRESHES: u32 = 30;
const REFRESH_AFTER_SECONDS: u32 = 4;

#[derive(Clone)]
struct Desk {
    payments: Payments,
    lookups: Arc<Semaphore>,
}

pub fn router(payments: Payments) -> Router {
    let desk = Desk { payments, lookups: Arc::new(Semaphore::new(LOOKUPS_AT_ONCE)) };
    Router::new().route("/billing/topups/{topup_id}", get(show)).with_state(desk)
}

#[derive(Default, Deserialize)]
struct Returned {
    /// `paid` or `canceled`: the button by which the checkout was left.
    #[serde(default)]
    result: String,
    /// How often this page was loaded again.
    #[serde(default)]
    refreshes: u32,
}

async fn show(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    returned: Result<Query<Returned>, QueryRejection>,
) -> Response {
    let Ok(id) = id.parse::<TopupId>() else { return unknown() };
    // Parameters that we did not make change nothing of what happened.
    let returned = returned.map(|Query(returned)| returned).unwrap_or_default();
    match tokio::time::timeout(LOOKUP_WITHIN, outcome(&desk, id)).await {
        Ok(Ok(Some(outcome))) => page(id, &outcome, &returned).render(StatusCode::OK, ""),
        Ok(Ok(None)) => unknown(),
        Ok(Err(failure)) => {
            let problem = endpoint::publish(desk.payments.db(), failure);
            let status = StatusCode::from_u16(problem.code.status());
            unavailable(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        }
        Err(_) => unavailable(StatusCode::SERVICE_UNAVAILABLE),
    }
}

async fn outcome(desk: &Desk, id: TopupId) -> Result<Option<CheckoutOutcome>, Failure> {
    let Ok(_permit) = desk.lookups.acquire().await else { return Ok(None) };
    checkout_outcome(&desk.payments, id).await
}

fn page(id: TopupId, outcome: &CheckoutOutcome, returned: &Returned) -> Page<'static> {
    let amount = money(outcome.amount_minor, &outcome.currency);
    let again =
        format!("gpuaas billing topup {}", kernel::money::decimal(outcome.amount_minor, &outcome.currency));
    let facts = vec![("Amount", amount.clone()), ("Top-up", id.to_string())];
    let balance = ("See the balance", "gpuaas billing balance".to_owned());
    let try_again = ("Start another checkout", again);
    let section = |facts, commands| {
        vec![Section { facts, ..Section::new("") }, Section { commands, ..Section::new("Next") }]
    };
    match outcome.state {
        TopupState::Paid => Page {
            title: "Payment received",
            notice: Some(Notice::Good(format!("{amount} is credited to the balance."))),
            text: vec!["You can close this page and go on in the terminal.".to_owned()],
            sections: section(
                facts,
                vec![
                    balance,
                    ("See what can be launched", "gpuaas catalog".to_owned()),
                ],
            ),
            ..Page::default()
        },
        TopupState::Expired | TopupState::Failed => Page {
            title: "Nothing was charged",
            notice: Some(Notice::Bad("This checkout has ended without a payment.".to_owned())),
            text: vec!["It cannot be paid any more.".to_owned()],
            sections: section(facts, vec![try_again]),
            ..Page::default()
        },
        TopupState::Created | TopupState::Open if returned.result == "canceled" => Page {
            title: "Nothing was charged",
            notice: Some(Notice::Wait("You left the checkout without paying.".to_owned())),
            text: vec![
                "To pay after all, go back in your browser: the checkout stays open until it expires. To end it \
                 now, cancel the top-up."
                    .to_owned(),
            ],
            sections: section(
                facts,
                vec![
                    try_again,
                    ("Cancel this top-up", format!("gpuaas billing topups cancel {id}")),
                ],
            ),
            ..Page::default()
        },
        TopupState::Created | TopupState::Open => pending(id, facts, returned.refreshes, balance),
    }
}

fn pending(
    id: TopupId,
    facts: Vec<(&'static str, String)>,
    refreshes: u32,
    balance: (&'static str, String),
) -> Page<'static> {
    let refreshes = refreshes.saturating_add(1);
    let is_waiting = refreshes <= MOST_REFRESHES;
    let text = if is_waiting {
        "The payment provider has not confirmed the payment yet. This page is loaded again by itself."
    } else {
        "The payment provider has still not confirmed the payment. A payment that was made is credited when the \
         provider confirms it, however late; reload this page to look again."
    };
    let state = ("See the state of this top-up", format!("gpuaas billing topups show {id}"));
    Page {
        title: "The payment is being confirmed",
        notice: Some(Notice::Wait("The balance is credited as soon as the payment is confirmed.".to_owned())),
        text: vec![text.to_owned()],
        sections: vec![
            Section { facts, ..Section::new("") },
            Section { commands: vec![state, balance], ..Section::new("In the terminal") },
        ],
        refresh: is_waiting.then(|| Refresh {
            after_seconds: REFRESH_AFTER_SECONDS,
            address: format!("/billing/topups/{id}?result=paid&refreshes={refreshes}"),
        }),
        ..Page::default()
    }
}

fn unknown() -> Response {
    let page = Page {
        title: "There is no such top-up",
        notice: Some(Notice::Bad("The address is not that of a top-up of this installation.".to_owned())),
        text: vec!["Your top-ups are listed by `gpuaas billing topups list`.".to_owned()],
        ..Page::default()
    };
    page.render(StatusCode::NOT_FOUND, "")
}

fn unavailable(status: StatusCode) -> Response {
    let page = Page {
        title: "The state of the payment is not known now",
        notice: Some(Notice::Bad("The top-up could not be read.".to_owned())),
        text: vec![
            "A payment that was made is credited when the provider confirms it. Reload this page in a moment, or \
             run `gpuaas billing topups list`."
                .to_owned(),
        ],
        ..Page::default()
    };
    let mut response = page.render(status, "");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(state: TopupState, result: &str, refreshes: u32) -> Page<'static> {
        let outcome = CheckoutOutcome { amount_minor: 2500, currency: "USD".to_owned(), state };
        let id: TopupId = "topup_0193b3a0000070008000000000000001".parse().expect("an id");
        page(id, &outcome, &Returned { result: result.to_owned(), refreshes })
    }

    #[test]
    fn what_the_address_claims_never_makes_a_payment() {
        for state in [TopupState::Created, TopupState::Open] {
            assert_eq!(shown(state, "paid", 0).title, "The payment is being confirmed");
            assert_eq!(shown(state, "anything", 0).title, "The payment is being confirmed");
            assert_eq!(shown(state, "canceled", 0).title, "Nothing was charged");
        }
        for result in ["paid", "canceled", ""] {
            assert_eq!(shown(TopupState::Paid, result, 0).title, "Payment received");
            assert_eq!(shown(TopupState::Expired, result, 0).title, "Nothing was charged");
            assert_eq!(shown(TopupState::Failed, result, 0).title, "Nothing was charged");
        }
    }

    #[test]
    fn only_a_page_that_waits_is_loaded_again_and_not_for_ever() {
        let address =
            |refreshes| shown(TopupState::Open, "paid", refreshes).refresh.map(|refresh| refresh.address);
        assert!(address(0).is_some_and(|address| address.ends_with("&refreshes=1")));
        assert!(address(MOST_REFRESHES - 1).is_some());
        assert_eq!((address(MOST_REFRESHES), address(u32::MAX)), (None, None));
        for (state, result) in
            [(TopupState::Paid, "paid"), (TopupState::Open, "canceled"), (TopupState::Failed, "paid")]
        {
            assert!(shown(state, result, 0).refresh.is_none(), "{state:?}");
        }
    }
}
