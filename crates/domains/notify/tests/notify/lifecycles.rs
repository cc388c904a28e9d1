use lifecycle::{Lifecycle, Named};
use notify::model::{delivery::DeliveryLifecycle, webhook::WebhookLifecycle};
use pg::Roles;
use testkit::TestDb;

async fn same<L: Lifecycle>(db: &TestDb)
where
    L::State: Named,
{
    let rows: Vec<(String, String)> = sqlx::query_as(
        "SELECT from_state, to_state FROM lifecycle_transitions WHERE lifecycle = $1 ORDER BY 1, 2",
    )
    .bind(L::NAME)
    .fetch_all(&mut db.conn(Roles::Admin).await)
    .await
    .unwrap();
    let rows: Vec<(&str, &str)> = rows.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    assert_eq!(rows, L::rows());
}

#[tokio::test]
async fn the_lifecycles_in_the_code_equal_those_in_the_database() {
    let db = TestDb::create().await;
    same::<DeliveryLifecycle>(&db).await;
    same::<WebhookLifecycle>(&db).await;
}
