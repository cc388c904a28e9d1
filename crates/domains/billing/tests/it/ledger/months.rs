//! Ledgers are kept by month; a chain goes on through months and years, and its times never go back.

use billing::api::{Account, PostingKind};
use chrono::{DateTime, TimeDelta, Utc};
use pg::Roles;

use super::kit::Kit;

const TOPUP: [(Account, i64); 2] = [(Account::Prepaid, 100), (Account::CashStripe, -100)];

#[tokio::test]
async fn a_chain_goes_on_through_months_and_years() {
    let kit = Kit::new().await;
    for _ in 0..30 {
        kit.post(PostingKind::Topup, None, &TOPUP).await;
        kit.pass(TimeDelta::days(27));
    }
    let months: i64 = kit.one("SELECT count(DISTINCT tableoid) FROM ledger_postings").await;
    assert!(months > 24, "{months}");
    let found = kit.verify().await;
    assert!(found.ok && found.postings == 30, "{found:?}");
    assert_eq!(
        kit.one::<i64>("SELECT prepaid_after FROM ledger_postings ORDER BY seq DESC LIMIT 1").await,
        3_000
    );
}

#[tokio::test]
async fn the_last_moment_of_a_month_and_the_first_of_the_next_are_kept_apart() {
    let kit = Kit::new().await;
    let end: DateTime<Utc> = "2031-12-31T23:59:59.999999Z".parse().unwrap();
    kit.pass(end - kit.now() - TimeDelta::seconds(1));
    kit.post(PostingKind::Topup, None, &TOPUP).await;
    kit.pass(TimeDelta::seconds(-1) + TimeDelta::microseconds(1));
    kit.post(PostingKind::Topup, None, &TOPUP).await;
    let tables: Vec<String> =
        kit.one("SELECT array_agg(tableoid::regclass::text ORDER BY seq) FROM ledger_postings").await;
    assert_eq!(tables, ["ledger_postings_2031m12", "ledger_postings_2032m01"]);
    assert!(kit.verify().await.ok);
}

#[tokio::test]
async fn a_clock_that_goes_back_does_not_take_the_chain_with_it() {
    let kit = Kit::new().await;
    kit.post(PostingKind::Topup, None, &TOPUP).await;
    kit.pass(TimeDelta::days(-70));
    kit.post(PostingKind::Topup, None, &TOPUP).await;
    kit.pass(TimeDelta::days(200));
    kit.post(PostingKind::Topup, None, &TOPUP).await;
    let in_order: bool = kit
        .one("SELECT array_agg(seq ORDER BY posted_at, seq) = array_agg(seq ORDER BY seq) FROM ledger_postings")
        .await;
    assert!(in_order);
    let found = kit.verify().await;
    assert!(found.ok && found.postings == 3, "{found:?}");
}

#[tokio::test]
async fn two_organizations_that_begin_a_month_at_once_both_get_through() {
    let kit = Kit::new().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let mut posting = kit.posting(PostingKind::Topup, None, &TOPUP);
        posting.org = kit.test.db.ambient().id();
        let permit = pg::Permit::system("a test races", kit.origin());
        let billing = kit.billing.clone();
        tasks.spawn(async move {
            let mut tx = billing.db().write(permit, "ledger.post").await.unwrap();
            billing::api::post(&billing, &mut tx, posting).await.unwrap().unwrap();
            tx.commit(None).await.unwrap();
        });
    }
    tasks.join_all().await;
    assert_eq!(kit.one::<i64>("SELECT count(*) FROM ledger_postings").await, 5);
}

/// Blocks that a statement touches.
async fn blocks(kit: &Kit, sql: &str) -> i64 {
    let mut admin = kit.test.conn(Roles::Admin).await;
    let sql = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}")
        .replace("$org", &format!("'{}'", kit.org.uuid()));
    let plan: serde_json::Value =
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut admin).await.unwrap();
    let plan = &plan[0]["Plan"];
    plan["Shared Hit Blocks"].as_i64().unwrap() + plan["Shared Read Blocks"].as_i64().unwrap()
}

#[tokio::test]
async fn reading_a_balance_costs_the_same_with_ten_postings_and_with_thousands() {
    const BALANCE: &str = "SELECT c.currency, p.prepaid_after, p.held_after, p.promo_after, p.disputed_after
        FROM ledger_chains c
        LEFT JOIN ledger_postings p ON p.org_id = c.org_id AND p.seq = c.seq AND p.posted_at = c.posted_at
        WHERE c.org_id = $org";
    let kit = Kit::new().await;
    let grow = async |count: i64| {
        let sql = format!(
            "SELECT count(ledger_append(ROW($org, 'USD', '2031-05-06Z'::timestamptz + n * interval '1 hour', gen_random_uuid(),
                'topup', NULL, 'many', NULL, 'system', NULL, gen_random_uuid())::new_posting,
                ROW(ARRAY['prepaid', 'cash_stripe'],
                ARRAY[n, -n], ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::uuid[],
                ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::timestamptz[], ARRAY[NULL, NULL]::timestamptz[])::line_batch))
            FROM generate_series(1, {count}::bigint) AS n"
        );
        assert_eq!(kit.one::<i64>(&sql).await, count);
        kit.test.sql("VACUUM ANALYZE ledger_chains, ledger_postings").await;
    };
    grow(10).await;
    let few = blocks(&kit, BALANCE).await;
    grow(4_000).await;
    let many = blocks(&kit, BALANCE).await;
    // One row of the chain and one of a month, by index; an index of more levels is allowed for.
    assert!(few <= 10 && many <= 10, "{few} blocks, then {many}");
}
