//! The tables of the code and of the database are one.

use payments::model::{
    day::DayLifecycle, dispute::DisputeLifecycle, refund::RefundLifecycle, topup::TopupLifecycle,
    webhook::MessageLifecycle,
};
use testkit::TestDb;

#[tokio::test]
async fn the_database_allows_exactly_what_the_tables_of_the_code_do() {
    let test = TestDb::create().await;
    test.assert_lifecycle::<TopupLifecycle>().await;
    test.assert_lifecycle::<RefundLifecycle>().await;
    test.assert_lifecycle::<DisputeLifecycle>().await;
    test.assert_lifecycle::<MessageLifecycle>().await;
    test.assert_lifecycle::<DayLifecycle>().await;
}
