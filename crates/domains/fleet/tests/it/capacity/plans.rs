//! How the database goes about it with ten thousand nodes: by index, never through the whole fleet.

use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use super::kit::Kit;

const NODES: u32 = 10_000;

/// Rows that were read from a table by going through all of it, and by index.
async fn reads(conn: &mut sqlx::PgConnection, table: &str) -> (i64, i64) {
    let sql = "SELECT coalesce(seq_tup_read, 0) AS seq, coalesce(idx_tup_fetch, 0) AS idx
        FROM pg_stat_xact_user_tables WHERE relname = $1";
    let row = sqlx::query(sql).bind(table).fetch_one(conn).await.unwrap();
    (row.get("seq"), row.get("idx"))
}

#[tokio::test]
async fn a_decision_reads_a_handful_of_rows_of_ten_thousand_nodes() {
    let kit = Kit::new().await;
    kit.nodes(NODES, 8).await;
    kit.free_of_lifecycles().await;
    kit.test
        .sql(
            "UPDATE node_resource_slots SET state = 'in_use'
             WHERE (hashtext(node_id::text) >> slot_index) & 1 = 0",
        )
        .await;
    for analyzed in [false, true] {
        if analyzed {
            kit.test.sql("VACUUM ANALYZE").await;
        }
        for (slots, whole, spread) in
            [(1, false, false), (3, false, true), (8, true, false), (8, false, false)]
        {
            let wanted = format!("{slots} slots, whole: {whole}, spread: {spread}");
            let mut conn = kit.admin().await;
            conn.execute("BEGIN").await.unwrap();
            let sql = format!(
                "SELECT slot_id FROM fleet_candidates(
                     ROW('gpu', 'H200', 'here', 'any', NULL, '{{}}', {slots}, {whole})::slot_request, 1, {spread}, 1, false)"
            );
            let slots: Vec<uuid::Uuid> =
                sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut conn).await.unwrap();
            sqlx::query("SELECT fleet_slots_reserve($1, now())")
                .bind(&slots)
                .execute(&mut conn)
                .await
                .unwrap();
            for table in ["node_capacity", "node_resource_slots", "nodes"] {
                let (seq, idx) = reads(&mut conn, table).await;
                assert_eq!(seq, 0, "{table} was gone through for {wanted}, analyzed: {analyzed}");
                assert!(idx < 200, "{idx} rows of {table} were read for {wanted}, analyzed: {analyzed}");
            }
            conn.execute("ROLLBACK").await.unwrap();
        }
    }
}
