//! The database and the verifier build the same bytes.

use billing::api::{Account, PostingKind};
use chrono::TimeDelta;
use kernel::ledger::ExportLine;

use super::kit::Kit;

#[tokio::test]
async fn every_kind_of_posting_verifies_in_the_product_and_as_an_export() {
    let kit = Kit::busy().await;
    let kinds: Vec<String> = kit
        .one("SELECT array_agg(DISTINCT kind ORDER BY kind) FROM ledger_postings WHERE org_id = $org")
        .await;
    assert_eq!(
        kinds,
        ["correction", "credit", "hold", "hold_release", "promo", "refund", "topup", "usage"],
        "the test makes every kind"
    );
    let actors: Vec<String> =
        kit.one("SELECT array_agg(DISTINCT actor_kind ORDER BY actor_kind) FROM ledger_postings").await;
    assert_eq!(actors, ["system", "user"]);
    let found = kit.verify().await;
    assert!(found.ok, "{found:?}");
    let (postings, lines): (i64, i64) = (
        kit.one("SELECT count(*) FROM ledger_postings").await,
        kit.one("SELECT count(*) FROM ledger_lines").await,
    );
    assert_eq!((found.postings, found.lines), (postings.unsigned_abs(), lines.unsigned_abs()));
    assert_eq!(found.checkpoints, 2);
    assert_eq!(found.head.seq, postings);
}

#[tokio::test]
async fn hashes_of_the_database_are_those_of_the_verifier() {
    let kit = Kit::busy().await;
    let mut seen = 0;
    for text in kit.export().await.lines() {
        match serde_json::from_str::<ExportLine>(text).unwrap() {
            ExportLine::Posting(posting) => {
                let sql = format!(
                    "SELECT ledger_hash(p) FROM ledger_postings p WHERE org_id = $org AND seq = {}",
                    posting.seq
                );
                let hash: Vec<u8> = kit.one(&sql).await;
                assert_eq!(hash, posting.expected_hash(&posting.prev_hash.0));
                seen += 1;
            }
            ExportLine::Line(line) => {
                let sql = format!(
                    "SELECT ledger_leaf(ROW(line, account, amount_minor, project_id, allocation_id, app_instance_id, meter_id,
                         window_start, window_end, correlation_id)::ledger_line_content)
                     FROM ledger_lines WHERE org_id = $org AND seq = {} AND line = {}",
                    line.seq, line.line
                );
                let leaf: Vec<u8> = kit.one(&sql).await;
                assert_eq!(leaf, line.expected_leaf());
            }
            ExportLine::Head(_) | ExportLine::Checkpoint(_) => {}
        }
    }
    assert!(seen > 8);
}

#[tokio::test]
async fn a_posting_of_more_lines_than_are_read_at_once_is_walked_in_order() {
    let kit = Kit::new().await;
    let mut lines: Vec<(Account, i64)> = (1..=4500).map(|amount| (Account::Prepaid, amount)).collect();
    lines.push((Account::CashStripe, -4500 * 4501 / 2));
    kit.post(PostingKind::Topup, None, &lines).await;
    for _ in 0..3 {
        kit.post(PostingKind::Credit, None, &[(Account::Prepaid, 1), (Account::CreditsGranted, -1)]).await;
    }
    kit.pass(TimeDelta::days(1));
    let found = kit.verify().await;
    assert!(found.ok, "{found:?}");
    assert_eq!((found.postings, found.lines), (4, 4507));
}

#[tokio::test]
async fn more_postings_than_are_read_at_once_are_walked_in_order() {
    let kit = Kit::new().await;
    let sql = "SELECT count(ledger_append(ROW($org, 'USD', '2031-05-06Z'::timestamptz + n * interval '1 second', gen_random_uuid(),
            'topup', 'r' || n, 'many', NULL, 'system', NULL, gen_random_uuid())::new_posting,
                ROW(ARRAY['prepaid', 'cash_stripe'],
            ARRAY[n, -n], ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::uuid[],
            ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::timestamptz[], ARRAY[NULL, NULL]::timestamptz[])::line_batch))
        FROM generate_series(1, 450::bigint) AS n";
    assert_eq!(kit.one::<i64>(sql).await, 450);
    let found = kit.verify().await;
    assert!(found.ok, "{found:?}");
    assert_eq!((found.postings, found.lines), (450, 900));
}
