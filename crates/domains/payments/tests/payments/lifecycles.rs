//! The tables of the code and of the database are one.

use lifecycle::Lifecycle;
use payments::model::{
    day::DayLifecycle, dispute::DisputeLifecycle, refund::RefundLifecycle, topup::TopupLifecycle,
    webhook::MessageLifecycle,
};
use pg::Roles;
use testkit::TestDb;

async fn same<L: Lifecycle>(test: &TestDb) {
    let sql = "SELECT from_state, to_state FROM lifecycle_transitions WHERE lifecycle = $1 ORDER BY 1, 2";
    let mut conn = test.conn(Roles::Admin).await;
    let rows: Vec<(String, String)> = sqlx::query_as(sql).bind(L::NAME).fetch_all(&mut conn).await.unwrap();
    let rows: Vec<(&str, &str)> = rows.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    assert_eq!(rows, L::rows(), "{}", L::NAME);
}

#[tokio::test]
async fn the_database_allows_exactly_what_the_tables_of_the_code_do() {
    let test = TestDb::create().await;
    same::<TopupLifecycle>(&test).await;
    same::<RefundLifecycle>(&test).await;
    same::<DisputeLifecycle>(&test).await;
    same::<MessageLifecycle>(&test).await;
    same::<DayLifecycle>(&test).await;
}
