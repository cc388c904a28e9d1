//! What the database refuses, to whom.

use billing::api::{Account, PostingKind, post};
use pg::{Permit, Roles};
use sqlx::Executor as _;

use super::kit::Kit;

fn sqlstate(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code().map(|code| code.into_owned()))
}

/// Runs SQL as a role that has put off the habit of not writing: rights must do without it.
async fn run(kit: &Kit, role: Roles, sql: &str) -> Result<(), sqlx::Error> {
    let mut conn = kit.test.conn(role).await;
    conn.execute("SET default_transaction_read_only = off").await.unwrap();
    let sql = sql.replace("$org", &format!("'{}'", kit.org.uuid()));
    conn.execute(sqlx::AssertSqlSafe(sql)).await.map(|_| ())
}

#[tokio::test]
async fn no_service_role_can_write_and_not_even_the_owner_can_change_what_was_written() {
    let kit = Kit::busy().await;
    let month: String = kit.one("SELECT min(tableoid::regclass::text) FROM ledger_lines").await;
    let month_of_postings: String =
        kit.one("SELECT min(tableoid::regclass::text) FROM ledger_postings").await;
    let tables = [
        "ledger_postings",
        "ledger_lines",
        "ledger_checkpoints",
        "ledger_references",
        &month,
        &month_of_postings,
    ];
    for table in tables {
        let column = if table == "ledger_references" { "reference = reference" } else { "org_id = org_id" };
        for sql in [
            format!("UPDATE {table} SET {column}"),
            format!("DELETE FROM {table}"),
            format!("TRUNCATE {table}"),
        ] {
            for role in [Roles::App, Roles::System, Roles::Owner] {
                let refused = run(&kit, role, &sql).await.unwrap_err();
                assert_eq!(sqlstate(&refused).as_deref(), Some("42501"), "{role:?}: {sql}: {refused}");
            }
        }
        for role in [Roles::App, Roles::System] {
            let sql = format!("INSERT INTO {table} SELECT * FROM {table} LIMIT 1");
            let refused = run(&kit, role, &sql).await.unwrap_err();
            assert_eq!(sqlstate(&refused).as_deref(), Some("42501"), "{role:?}: {sql}");
        }
    }
    for sql in [
        "UPDATE ledger_chains SET seq = 0",
        "DELETE FROM ledger_chains",
        "TRUNCATE ledger_chains",
        "INSERT INTO ledger_chains SELECT * FROM ledger_chains LIMIT 1",
    ] {
        for role in [Roles::App, Roles::System] {
            assert_eq!(
                sqlstate(&run(&kit, role, sql).await.unwrap_err()).as_deref(),
                Some("42501"),
                "{role:?}: {sql}"
            );
        }
    }
    assert!(kit.verify().await.ok);
}

#[tokio::test]
async fn requests_cannot_append_or_sign_directly() {
    let kit = Kit::busy().await;
    let append = "SELECT ledger_append(ROW($org, 'USD', now(), gen_random_uuid(), 'topup', NULL, '', NULL, 'system', NULL,
        gen_random_uuid())::new_posting, ROW(ARRAY['prepaid', 'cash_stripe'], ARRAY[1, -1]::bigint[], NULL, NULL, NULL, NULL, NULL, NULL)::line_batch)";
    let sign =
        "SELECT ledger_checkpoints_add('2031-01-01', now(), '', '', ROW(ARRAY[$org::uuid], ARRAY[0::bigint],
        ARRAY[1::bigint], ARRAY[''::bytea], ARRAY[''::bytea])::checkpoint_batch)";
    for sql in [append, sign] {
        assert_eq!(
            sqlstate(&run(&kit, Roles::App, sql).await.unwrap_err()).as_deref(),
            Some("42501"),
            "{sql}"
        );
    }
}

const APPEND: &str = "SELECT ledger_append(ROW($org, 'USD', now(), gen_random_uuid(), 'topup', NULL, 'a test', NULL, 'system', NULL,
    gen_random_uuid())::new_posting, ROW(ARRAY['prepaid', 'cash_stripe'], ARRAY[$amounts]::bigint[], ARRAY[NULL, NULL]::uuid[],
    ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::timestamptz[],
    ARRAY[NULL, NULL]::timestamptz[])::line_batch)";

#[tokio::test]
async fn what_does_not_sum_to_zero_is_refused_at_commit() {
    let kit = Kit::busy().await;
    let postings: i64 = kit.one("SELECT count(*) FROM ledger_postings").await;
    for role in [Roles::System, Roles::Owner] {
        run(&kit, role, &APPEND.replace("$amounts", "1, -1")).await.unwrap();
        let refused = run(&kit, role, &APPEND.replace("$amounts", "100, -99")).await.unwrap_err();
        assert_eq!(pg::constraint_violated(&refused), Some("ledger_posting_balances"), "{role:?}");
    }
    // Within the transaction it is let through, to be refused at its end.
    let mut conn = kit.test.conn(Roles::System).await;
    conn.execute("BEGIN READ WRITE").await.unwrap();
    let sql = APPEND.replace("$amounts", "5, 5").replace("$org", &format!("'{}'", kit.org.uuid()));
    conn.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    let refused = conn.execute("COMMIT").await.unwrap_err();
    assert_eq!(pg::constraint_violated(&refused), Some("ledger_posting_balances"));
    assert_eq!(kit.one::<i64>("SELECT count(*) FROM ledger_postings").await, postings + 2);
    assert!(kit.verify().await.ok);
}

#[tokio::test]
async fn lines_cannot_join_a_posting_of_another_transaction() {
    let kit = Kit::busy().await;
    let join = "INSERT INTO ledger_lines SELECT org_id, seq, l.line + n.line * 100, posted_at, account, n.sign * 5, project_id,
            allocation_id, app_instance_id, meter_id, window_start, window_end, correlation_id, leaf
        FROM ledger_lines l, (VALUES (1, 1), (2, -1)) AS n (line, sign) WHERE org_id = $org AND seq = 2 AND l.line = 1";
    let refused = run(&kit, Roles::Owner, join).await.unwrap_err();
    assert_eq!(pg::constraint_violated(&refused), Some("ledger_lines_join"), "{refused}");
    assert!(kit.verify().await.ok);
}

#[tokio::test]
async fn a_reference_is_posted_once_however_many_come_with_it() {
    let kit = Kit::new().await;
    let lines = [(Account::Prepaid, 2_500), (Account::CashStripe, -2_500)];
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let posting = kit.posting(PostingKind::Topup, Some("pay_once"), &lines);
        let (billing, permit) = (kit.billing.clone(), Permit::system("a test races", kit.origin()));
        tasks.spawn(async move {
            let mut tx = billing.db().write(permit, "ledger.post").await.unwrap();
            let posted = post(&billing, &mut tx, posting).await.unwrap();
            tx.commit(None).await.unwrap();
            posted.is_some()
        });
    }
    let posted = tasks.join_all().await;
    assert_eq!(posted.iter().filter(|posted| **posted).count(), 1, "{posted:?}");
    let found = kit.verify().await;
    assert!(found.ok && found.postings == 1, "{found:?}");
    assert_eq!(kit.one::<i64>("SELECT prepaid_after FROM ledger_postings").await, 2_500);
    // The same reference of another kind is another thing.
    kit.post(PostingKind::Credit, Some("pay_once"), &[(Account::Prepaid, 1), (Account::CreditsGranted, -1)])
        .await;
}

#[tokio::test]
async fn a_reference_of_one_organization_is_not_posted_for_another() {
    let kit = Kit::new().await;
    let lines = [(Account::Prepaid, 2_500), (Account::CashStripe, -2_500)];
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let mut posting = kit.posting(PostingKind::Topup, Some("pay_once"), &lines);
        posting.org = kit.test.db.ambient().id();
        let (billing, permit) = (kit.billing.clone(), Permit::system("a test races", kit.origin()));
        tasks.spawn(async move {
            let mut tx = billing.db().write(permit, "ledger.post").await.unwrap();
            // Of those that wait for the first, some are told that it is there, and some fail.
            let posted = post(&billing, &mut tx, posting).await;
            if matches!(posted, Ok(Some(_))) {
                tx.commit(None).await.unwrap();
                return true;
            }
            tx.roll_back().await;
            false
        });
    }
    let posted = tasks.join_all().await;
    assert_eq!(posted.iter().filter(|posted| **posted).count(), 1, "{posted:?}");
    assert_eq!(kit.one::<i64>("SELECT count(*) FROM ledger_postings").await, 1);
}
