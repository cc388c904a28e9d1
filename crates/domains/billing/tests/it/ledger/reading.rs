//! What people read: the balance, the list, a posting, the totals.

use billing::model::balance::BalanceState;
use billing::{
    api::{Account, PostingKind},
    service::{
        chains::LedgerVerifier,
        ledger::{Filter, balance_get, ledger_get, ledger_list, ledger_totals},
    },
};
use kernel::{Code, PageQuery, Permission, Role};
use pg::{Permit, ReadTx, Scope};
use serde_json::json;

use super::kit::Kit;

async fn read(kit: &Kit) -> ReadTx {
    let permit = kit.permit(Role::OrgOwner, Scope::Org(kit.org), Permission::BillingRead);
    kit.test.db.read(&permit).await.unwrap()
}

#[tokio::test]
async fn the_balance_is_what_the_last_posting_says() {
    let kit = Kit::busy().await;
    let balance = balance_get(&kit.billing, &mut read(&kit).await, kit.org).await.unwrap();
    let sums: Vec<i64> = kit
        .one("SELECT array_agg(coalesce((SELECT sum(amount_minor)::bigint FROM ledger_lines WHERE account = a), 0) ORDER BY n)
              FROM unnest(ARRAY['prepaid', 'held', 'promo', 'disputed']) WITH ORDINALITY AS x (a, n)")
        .await;
    let shown = [balance.prepaid_minor, balance.held_minor, balance.promo_minor, balance.disputed_minor];
    assert_eq!(shown.to_vec(), sums);
    assert_eq!(balance.disputed_minor, 500);
    assert_eq!(balance.available_minor, balance.prepaid_minor + balance.promo_minor);
    assert_eq!(balance.total_minor, balance.available_minor + balance.held_minor);
    assert_eq!((balance.currency.as_str(), balance.burn_per_hour_minor), ("USD", 377 * 3));
    assert_eq!(balance.state, BalanceState::Healthy);
}

#[tokio::test]
async fn an_organization_without_a_ledger_has_nothing() {
    let kit = Kit::new().await;
    let balance = balance_get(&kit.billing, &mut read(&kit).await, kit.org).await.unwrap();
    assert_eq!(
        (balance.total_minor, balance.state, balance.burn_per_hour_minor),
        (0, BalanceState::Healthy, 0)
    );
    let found = kit.verify().await;
    assert!(found.ok && found.postings == 0);
}

#[tokio::test]
async fn the_list_goes_back_page_by_page_and_is_narrowed_by_kind_project_and_time() {
    let kit = Kit::busy().await;
    let all: i64 = kit.one("SELECT seq FROM ledger_chains").await;
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let page: PageQuery = match &cursor {
            None => serde_json::from_value(json!({ "page_size": 4 })).unwrap(),
            Some(cursor) => serde_json::from_value(json!({ "page_size": 4, "cursor": cursor })).unwrap(),
        };
        let page = ledger_list(&kit.billing, &mut read(&kit).await, kit.org, &Filter::default(), &page)
            .await
            .unwrap();
        seen.extend(page.items.iter().map(|item| item.posting.seq));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, (1..=all).rev().collect::<Vec<_>>());
    let narrowed = async |filter: Filter| {
        let page = ledger_list(&kit.billing, &mut read(&kit).await, kit.org, &filter, &PageQuery::default())
            .await
            .unwrap();
        page.items.into_iter().map(|item| item.posting.kind).collect::<Vec<_>>()
    };
    assert_eq!(
        narrowed(Filter { kind: Some(PostingKind::Topup), ..Filter::default() }).await,
        ["topup", "topup"]
    );
    let of_project = narrowed(Filter { project: Some(kit.project.uuid()), ..Filter::default() }).await;
    assert!(of_project.contains(&"usage".to_owned()) && !of_project.contains(&"topup".to_owned()));
    let now = kit.now();
    let early = Filter { to: Some(now - chrono::TimeDelta::hours(2)), ..Filter::default() };
    let late = Filter { from: Some(now - chrono::TimeDelta::hours(2)), ..Filter::default() };
    let (early, late) = (narrowed(early).await, narrowed(late).await);
    assert_eq!(early.len() + late.len(), usize::try_from(all).unwrap());
    assert_eq!(
        (early.last().map(String::as_str), late.first().map(String::as_str)),
        (Some("topup"), Some("topup"))
    );
}

#[tokio::test]
async fn amounts_of_a_list_are_what_the_lines_of_the_organization_sum_to() {
    let kit = Kit::busy().await;
    let page: PageQuery = serde_json::from_value(json!({ "page_size": 200 })).unwrap();
    let listed =
        ledger_list(&kit.billing, &mut read(&kit).await, kit.org, &Filter::default(), &page).await.unwrap();
    assert!(listed.next_cursor.is_none());
    for item in &listed.items {
        let sum = format!(
            "SELECT coalesce(sum(amount_minor), 0)::bigint FROM ledger_lines
             WHERE seq = {} AND account IN ('prepaid', 'held', 'promo', 'disputed')",
            item.posting.seq
        );
        assert_eq!(item.amount_minor, kit.one::<i64>(&sum).await, "{item:?}");
        assert_eq!(item.direction.name() == "transfer", item.amount_minor == 0, "{item:?}");
        assert!(!item.description.is_empty());
    }
    let has = |kind: &str, part: &str| {
        listed.items.iter().any(|item| item.posting.kind == kind && item.description.contains(part))
    };
    assert!(has("hold", "set aside for"), "{listed:?}");
    assert!(has("usage", "Usage: "), "{listed:?}");
    let held = listed.items.iter().find(|item| item.description.contains("set aside for")).unwrap();
    assert!(held.moved_minor > 0 && !held.allocations.is_empty(), "{held:?}");
}

#[tokio::test]
async fn a_posting_is_shown_with_its_lines_and_only_to_its_organization() {
    let kit = Kit::busy().await;
    let entry = ledger_get(&mut read(&kit).await, kit.org, 3).await.unwrap();
    assert_eq!((entry.posting.kind.as_str(), entry.lines.len()), ("hold", 8));
    assert!(entry.lines.iter().all(|line| line.seq == 3 && line.project_id == Some(kit.project)));
    for seq in [0, -1, i64::MIN, i64::MAX] {
        assert!(ledger_get(&mut read(&kit).await, kit.org, seq).await.is_err(), "{seq}");
    }
    // Somebody else's connection does not see it, whatever is asked for.
    let other = kit.permit(Role::OrgOwner, Scope::Org(kit.test.db.ambient().id()), Permission::BillingRead);
    let mut other = kit.test.db.read(&other).await.unwrap();
    assert!(ledger_get(&mut other, kit.org, 3).await.is_err());
    let page = ledger_list(&kit.billing, &mut other, kit.org, &Filter::default(), &PageQuery::default())
        .await
        .unwrap();
    assert!(page.items.is_empty());
    assert_eq!(balance_get(&kit.billing, &mut other, kit.org).await.unwrap().total_minor, 0);
}

#[tokio::test]
async fn the_totals_of_all_ledgers_are_zero_and_say_so_when_they_are_not() {
    let kit = Kit::busy().await;
    let totals = async || {
        let permit = Permit::system("a test looks", kit.origin());
        ledger_totals(&mut kit.test.db.read(&permit).await.unwrap()).await.unwrap()
    };
    let found = totals().await;
    assert!(found.ok);
    let cash = found.accounts.iter().find(|total| total.account == "cash_stripe").unwrap();
    assert_eq!((cash.amount_minor, cash.currency.as_str()), (-100_001, "USD"));
    kit.tamper("UPDATE ledger_lines SET amount_minor = amount_minor + 1 WHERE seq = 1 AND line = 1").await;
    assert!(!totals().await.ok);
}

#[tokio::test]
async fn a_third_verification_at_a_time_is_sent_away() {
    let kit = Kit::new().await;
    kit.post(PostingKind::Topup, None, &[(Account::Prepaid, 1), (Account::CashStripe, -1)]).await;
    let verifier = LedgerVerifier::new(kit.billing.clone());
    let (one, two, three) =
        tokio::join!(verifier.verify(kit.org), verifier.verify_all(), verifier.verify(kit.org));
    assert!(one.unwrap().ok && two.unwrap().ok);
    let kernel::Failure::Problem(problem) = three.unwrap_err() else { panic!("expected a problem") };
    assert_eq!((problem.code, problem.retry_after_seconds), (Code::ServiceUnavailable, Some(10)));
    assert!(verifier.verify(kit.org).await.unwrap().ok);
}
