use notify::model::{delivery::DeliveryLifecycle, webhook::WebhookLifecycle};
use testkit::TestDb;

#[tokio::test]
async fn the_lifecycles_in_the_code_equal_those_in_the_database() {
    let db = TestDb::create().await;
    db.assert_lifecycle::<DeliveryLifecycle>().await;
    db.assert_lifecycle::<WebhookLifecycle>().await;
}
