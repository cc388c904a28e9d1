//! What somebody does who gets past every right and trigger is found and named, in the product and on an export.

use billing::service::chains::chain_verify;
use kernel::ledger::FaultReason::{
    self, Changed, CheckpointForged, CheckpointMismatch, CheckpointRemoved, HeadMismatch, Inserted,
    LinesChanged, ReferenceMissing, Removed, Unbalanced, Unlinked,
};

use super::kit::Kit;

const TABLES: [&str; 5] =
    ["ledger_chains", "ledger_postings", "ledger_lines", "ledger_checkpoints", "ledger_references"];

/// A ledger that can be put back as it was.
struct Victim(Kit);

impl Victim {
    async fn new() -> Self {
        let kit = Kit::busy().await;
        // Whoever gets past the triggers gets past the constraints as well.
        kit.test
            .sql(
                "DO $$ DECLARE c record; BEGIN
                     FOR c IN SELECT conrelid::regclass AS t, conname FROM pg_constraint WHERE contype = 'c'
                         AND coninhcount = 0 AND conrelid::regclass::text LIKE 'ledger%'
                     LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.t, c.conname); END LOOP;
                 END $$",
            )
            .await;
        for table in TABLES {
            kit.test.sql(&format!("CREATE TABLE kept_{table} AS TABLE {table}")).await;
        }
        Self(kit)
    }

    async fn restore(&self) {
        let put_back =
            |table: &str| format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table};");
        self.0.tamper(&TABLES.map(put_back).concat()).await;
    }

    /// What is found after the statements, if anything.
    async fn found(&self, sql: &str) -> Option<(i64, Option<i32>, FaultReason)> {
        self.0.tamper(sql).await;
        let found = self.0.verify().await;
        self.restore().await;
        found.fault.map(|fault| (fault.seq, fault.line, fault.reason))
    }

    async fn finds(&self, cases: &[(&str, i64, Option<i32>, FaultReason)]) {
        for (sql, seq, line, reason) in cases {
            assert_eq!(self.found(sql).await, Some((*seq, *line, *reason)), "{sql}");
        }
        assert!(self.0.verify().await.ok);
    }

    /// (name, an expression that changes it a little) of every column of a table.
    async fn columns(&self, table: &str) -> Vec<(String, String)> {
        let sql = format!(
            "SELECT array_agg(attname::text || '|' || CASE format_type(atttypid, NULL)
                 WHEN 'bytea' THEN format('coalesce(set_byte(%1$I, 0, get_byte(%1$I, 0) # 1), ''x'')', attname)
                 WHEN 'text' THEN format('coalesce(overlay(%1$I PLACING chr(ascii(%1$I) # 1) FROM 1), ''x'')', attname)
                 WHEN 'uuid' THEN format('coalesce(overlay(%1$I::text PLACING ''f00d'' FROM 1)::uuid, gen_random_uuid())', attname)
                 WHEN 'timestamp with time zone' THEN format('coalesce(%1$I + interval ''1 microsecond'', now())', attname)
                 WHEN 'date' THEN format('%I - 1', attname)
                 ELSE format('%I # 64', attname) END ORDER BY attnum)
             FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 AND attname <> 'xact'"
        );
        let columns: Vec<String> = self.0.one(&sql).await;
        columns
            .iter()
            .map(|text| text.split_once('|').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap())
            .collect()
    }
}

#[tokio::test]
async fn a_change_of_any_column_of_a_posting_is_found_in_the_posting() {
    let victim = Victim::new().await;
    let columns = victim.columns("ledger_postings").await;
    assert!(columns.len() > 18);
    for seq in [1, 4] {
        for (column, change) in &columns {
            let sql =
                format!("UPDATE ledger_postings SET {column} = {change} WHERE org_id = $org AND seq = {seq}");
            let (at, line, reason) =
                victim.found(&sql).await.unwrap_or_else(|| panic!("{column} was not found"));
            let expected = match column.as_str() {
                "prev_hash" => Unlinked,
                "org_id" | "seq" => Removed,
                _ => Changed,
            };
            assert_eq!((at, line, reason), (seq, None, expected), "{column}");
        }
    }
}

#[tokio::test]
async fn a_change_of_any_column_of_a_line_is_found_in_the_line() {
    let victim = Victim::new().await;
    let columns = victim.columns("ledger_lines").await;
    assert!(columns.len() > 12);
    // A line of a person's hold, and one of metered use.
    let usage: i64 = victim.0.one("SELECT min(seq) FROM ledger_postings WHERE kind = 'usage'").await;
    for seq in [3, usage] {
        for (column, change) in &columns {
            let sql = format!(
                "UPDATE ledger_lines SET {column} = {change} WHERE org_id = $org AND seq = {seq} AND line = 2"
            );
            let (at, line, reason) =
                victim.found(&sql).await.unwrap_or_else(|| panic!("{column} was not found"));
            let expected =
                if matches!(column.as_str(), "org_id" | "seq" | "line") { Removed } else { Changed };
            assert_eq!((at, line, reason), (seq, Some(2), expected), "{column}");
        }
    }
}

#[tokio::test]
async fn a_change_of_any_column_of_a_checkpoint_or_of_the_head_is_found() {
    let victim = Victim::new().await;
    for (column, change) in victim.columns("ledger_checkpoints").await {
        let sql =
            format!("UPDATE ledger_checkpoints SET {column} = {change} WHERE org_id = $org AND prev_seq = 0");
        let (_, _, reason) = victim.found(&sql).await.unwrap_or_else(|| panic!("{column} was not found"));
        let expected =
            if column == "org_id" || column == "seq" { CheckpointRemoved } else { CheckpointForged };
        assert_eq!(reason, expected, "{column}");
    }
    for (column, change) in victim.columns("ledger_chains").await {
        let sql = format!("UPDATE ledger_chains SET {column} = {change} WHERE org_id = $org");
        if column != "posted_at" {
            assert!(victim.found(&sql).await.is_some(), "{column} was not found");
            continue;
        }
        // Only in the database: it says where the last posting is kept.
        victim.0.tamper(&sql).await;
        let found = chain_verify(&victim.0.billing, victim.0.org).await.unwrap();
        assert_eq!(found.fault.map(|fault| fault.reason), Some(HeadMismatch));
        victim.restore().await;
    }
}

#[tokio::test]
async fn removed_rows_are_named() {
    let victim = Victim::new().await;
    let last: i64 = victim.0.one("SELECT seq FROM ledger_chains WHERE org_id = $org").await;
    let signed: i64 = victim.0.one("SELECT min(seq) FROM ledger_checkpoints").await;
    let signed_last: i64 = victim.0.one("SELECT max(seq) FROM ledger_checkpoints").await;
    victim
        .finds(&[
            ("DELETE FROM ledger_lines WHERE org_id = $org AND seq = 3 AND line = 1", 3, Some(1), Removed),
            ("DELETE FROM ledger_lines WHERE org_id = $org AND seq = 3 AND line = 6", 3, Some(6), Removed),
            ("DELETE FROM ledger_lines WHERE org_id = $org AND seq = 3", 3, Some(1), Removed),
            ("DELETE FROM ledger_lines WHERE org_id = $org", 1, Some(1), Removed),
            ("DELETE FROM ledger_postings WHERE org_id = $org AND seq = 1", 1, None, Removed),
            ("DELETE FROM ledger_postings WHERE org_id = $org AND seq = 3", 3, None, Removed),
            (
                "DELETE FROM ledger_postings WHERE org_id = $org AND seq = 3; DELETE FROM ledger_lines WHERE org_id = $org AND seq = 3",
                3,
                None,
                Removed,
            ),
            ("DELETE FROM ledger_postings WHERE org_id = $org", 1, None, Removed),
            ("DELETE FROM ledger_chains WHERE org_id = $org", 1, None, Inserted),
            ("DELETE FROM ledger_checkpoints WHERE org_id = $org AND prev_seq = 0", signed, None, CheckpointRemoved),
            ("DELETE FROM ledger_checkpoints WHERE org_id = $org AND prev_seq > 0", signed_last, None, CheckpointRemoved),
            ("DELETE FROM ledger_references WHERE reference = 'pay_1'", 1, None, ReferenceMissing),
            ("UPDATE ledger_references SET seq = 2 WHERE reference = 'pay_1'", 1, None, ReferenceMissing),
        ])
        .await;
    let cut = "DELETE FROM ledger_postings WHERE org_id = $org AND seq = $last;
        DELETE FROM ledger_lines WHERE org_id = $org AND seq = $last";
    let cut = cut.replace("$last", &last.to_string());
    assert_eq!(victim.found(&cut).await, Some((last, None, Removed)));
}

#[tokio::test]
async fn inserted_and_reordered_rows_are_named() {
    let victim = Victim::new().await;
    let last: i64 = victim.0.one("SELECT seq FROM ledger_chains WHERE org_id = $org").await;
    let copy_line = |seq: &str, line: &str, of: &str| {
        format!(
            "INSERT INTO ledger_lines SELECT org_id, {seq}, {line}, posted_at + interval '1 microsecond', account, amount_minor,
                 project_id, allocation_id, app_instance_id, meter_id, window_start, window_end, correlation_id, leaf
             FROM ledger_lines WHERE org_id = $org AND {of}"
        )
    };
    let copy_posting = |seq: &str, of: i64| {
        format!(
            "INSERT INTO ledger_postings SELECT org_id, {seq}, posted_at + interval '1 microsecond', gen_random_uuid(), kind,
                 currency, NULL, reason, corrects_entry_id, actor_kind, actor_id, correlation_id, lines, lines_digest,
                 prepaid_after, held_after, promo_after, disputed_after, prev_hash, hash, xact
             FROM ledger_postings WHERE org_id = $org AND seq = {of}"
        )
    };
    // By way of negative numbers: a key is never there twice.
    let swap = |table: &str, column: &str, of: &str, a: i64, b: i64| {
        format!(
            "UPDATE {table} SET {column} = -{column} WHERE org_id = $org AND {of} AND {column} IN ({a}, {b});
             UPDATE {table} SET {column} = CASE {column} WHEN -{a} THEN {b} ELSE {a} END
                 WHERE org_id = $org AND {of} AND {column} IN (-{a}, -{b})"
        )
    };
    let cases = [
        (copy_line("seq", "99", "seq = 3 AND line = 1"), 3, Some(99), Inserted),
        (copy_line("seq", "line", "seq = 3 AND line = 2"), 3, Some(2), Inserted),
        (copy_line("seq", "0", "seq = 3 AND line = 1"), 3, Some(0), Inserted),
        (copy_line("99", "1", "seq = 3 AND line = 1"), 99, Some(1), Inserted),
        (copy_line("0", "1", "seq = 3 AND line = 1"), 0, Some(1), Inserted),
        (copy_posting("seq", 3), 3, None, Inserted),
        (copy_posting("0", 3), 0, None, Inserted),
        (copy_posting("-5", 3), -5, None, Inserted),
        (copy_posting(&(last + 1).to_string(), last), last + 1, None, Unlinked),
        (swap("ledger_lines", "line", "seq = 3", 1, 2), 3, Some(1), Changed),
        (swap("ledger_postings", "seq", "true", 3, 4), 3, None, Unlinked),
        (swap("ledger_lines", "seq", "true", 1, 2), 1, Some(1), Changed),
    ];
    let cases: Vec<_> =
        cases.iter().map(|(sql, seq, line, reason)| (sql.as_str(), *seq, *line, *reason)).collect();
    victim.finds(&cases).await;
}

/// Gives everything from a posting on hashes that fit, as whoever knows how the chain is made can.
fn rehash(from: i64) -> String {
    format!(
        "UPDATE ledger_lines SET leaf = ledger_leaf(ROW(line, account, amount_minor, project_id, allocation_id, app_instance_id,
             meter_id, window_start, window_end, correlation_id)::ledger_line_content) WHERE org_id = $org AND seq >= {from};
         DO $$ DECLARE p ledger_postings; v_prev bytea; v_held bigint; v_prepaid bigint; BEGIN
             SELECT hash INTO v_prev FROM ledger_postings WHERE org_id = $org AND seq = {from} - 1;
             v_prev := coalesce(v_prev, ledger_genesis($org));
             FOR p IN SELECT * FROM ledger_postings WHERE org_id = $org AND seq >= {from} ORDER BY seq LOOP
                 SELECT sha256(string_agg(leaf, ''::bytea ORDER BY line)) INTO p.lines_digest
                     FROM ledger_lines WHERE org_id = $org AND seq = p.seq;
                 p.prev_hash := v_prev;
                 p.hash := ledger_hash(p);
                 UPDATE ledger_postings SET lines_digest = p.lines_digest, prev_hash = p.prev_hash, hash = p.hash
                     WHERE org_id = $org AND seq = p.seq;
                 v_prev := p.hash;
             END LOOP;
             UPDATE ledger_chains SET hash = v_prev WHERE org_id = $org;
         END $$;"
    )
}

#[tokio::test]
async fn hashes_that_fit_do_not_hide_what_was_done() {
    let victim = Victim::new().await;
    let signed: i64 = victim.0.one("SELECT min(seq) FROM ledger_checkpoints").await;
    let last: i64 = victim.0.one("SELECT seq FROM ledger_chains WHERE org_id = $org").await;
    // A larger top-up, a line with its own leaf only, a sum that is not zero.
    let larger = "UPDATE ledger_lines SET amount_minor = amount_minor * 2 WHERE org_id = $org AND seq = 1;
        UPDATE ledger_postings SET prepaid_after = prepaid_after + 100000 WHERE org_id = $org;";
    let reason = "UPDATE ledger_postings SET reason = 'something else' WHERE org_id = $org AND seq = 2;";
    let leaf = "UPDATE ledger_lines SET amount_minor = amount_minor - 1 WHERE org_id = $org AND seq = 2 AND line = 1;
        UPDATE ledger_lines SET leaf = ledger_leaf(ROW(line, account, amount_minor, project_id, allocation_id, app_instance_id,
            meter_id, window_start, window_end, correlation_id)::ledger_line_content) WHERE org_id = $org AND seq = 2;";
    let posting = "UPDATE ledger_postings p SET reason = 'x' WHERE org_id = $org AND seq = 2;
        UPDATE ledger_postings p SET hash = ledger_hash(p) WHERE org_id = $org AND seq = 2;";
    let unbalanced = format!(
        "UPDATE ledger_lines SET amount_minor = amount_minor + 1 WHERE org_id = $org AND seq = {last} AND account = 'cash_stripe';"
    );
    victim
        .finds(&[
            (&format!("{larger}{}", rehash(1)), signed, None, CheckpointMismatch),
            (&format!("{reason}{}", rehash(2)), signed, None, CheckpointMismatch),
            (leaf, 2, None, LinesChanged),
            (posting, 3, None, Unlinked),
            (&format!("{unbalanced}{}", rehash(last)), last, None, Unbalanced),
            (
                "UPDATE ledger_chains SET seq = seq - 1, hash = (SELECT prev_hash FROM ledger_postings p
                     WHERE p.org_id = $org AND p.seq = ledger_chains.seq) WHERE org_id = $org",
                last,
                None,
                Inserted,
            ),
            ("UPDATE ledger_chains SET hash = set_byte(hash, 0, get_byte(hash, 0) # 1) WHERE org_id = $org", last, None, HeadMismatch),
        ])
        .await;
}

#[tokio::test]
async fn a_chain_cut_off_with_its_head_is_found_by_what_was_signed() {
    let victim = Victim::new().await;
    let signed: i64 = victim.0.one("SELECT max(seq) FROM ledger_checkpoints").await;
    let cut = format!(
        "DELETE FROM ledger_postings WHERE org_id = $org AND seq >= {signed};
         DELETE FROM ledger_lines WHERE org_id = $org AND seq >= {signed};
         UPDATE ledger_chains c SET (seq, hash, posted_at) = (SELECT seq, hash, posted_at FROM ledger_postings p
             WHERE p.org_id = $org ORDER BY seq DESC LIMIT 1) WHERE org_id = $org;"
    );
    assert_eq!(victim.found(&cut).await, Some((signed, None, Removed)));
}

#[tokio::test]
async fn one_changed_byte_of_an_export_is_found_wherever_it_is() {
    let kit = Kit::busy().await;
    let export = kit.export().await;
    let trusted: Vec<_> = kit.verify().await.keys.iter().map(|key| key.public_key.0.clone()).collect();
    assert!(super::kit::verify_export(&export, &trusted).is_ok());
    // Every byte would take long: a stride that is prime comes to all kinds of places.
    let places: Vec<usize> = (0..export.len()).step_by(211).collect();
    for place in places {
        let mut bytes = export.clone().into_bytes();
        bytes[place] ^= 1;
        let text = String::from_utf8_lossy(&bytes);
        assert!(super::kit::verify_export(&text, &trusted).is_err(), "byte {place}");
    }
}
