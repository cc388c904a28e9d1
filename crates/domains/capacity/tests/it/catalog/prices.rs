//! Prices come to hold by their date and are never changed.

use capacity::{
    model::sku::{Currency, PriceUnit, SkuCode},
    service::catalog::{
        Catalog,
        managing::{PriceRequest, sku_price_create},
    },
};
use chrono::{DateTime, TimeDelta, Utc};
use kernel::Code;
use pg::Roles;

use super::{kit::Kit, products::problem};

const SKU: &str = "h200-sxm-slice";

fn price(minor: i64, valid_from: Option<DateTime<Utc>>) -> PriceRequest {
    let currency = Currency::parse("USD").unwrap();
    PriceRequest { unit: PriceUnit::GpuHour, unit_price_minor: minor, currency, valid_from }
}

async fn holds(catalog: &Catalog) -> i64 {
    catalog.product(SKU).await.unwrap().price.unit_price_minor
}

#[tokio::test]
async fn a_price_holds_from_its_date_on() {
    let kit = Kit::new().await;
    let (catalog, sku) = (Catalog::new(&kit.test.db), SkuCode::parse(SKU).unwrap());
    assert_eq!(holds(&catalog).await, 450);
    let date = kit.now() + TimeDelta::seconds(30);
    let mut tx = kit.write("sku_price.create").await;
    sku_price_create(&mut tx, &sku, price(500, Some(date))).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(holds(&catalog).await, 450);
    kit.pass(TimeDelta::milliseconds(29_999));
    assert_eq!(holds(&catalog).await, 450);
    // Nothing was told to the cache, and what it has is younger than a minute.
    kit.pass(TimeDelta::milliseconds(1));
    assert_eq!(holds(&catalog).await, 500);
    let mut tx = kit.write("sku_price.create").await;
    sku_price_create(&mut tx, &sku, price(475, None)).await.unwrap_err();
    tx.roll_back().await;
    kit.pass(TimeDelta::seconds(1));
    let mut tx = kit.write("sku_price.create").await;
    sku_price_create(&mut tx, &sku, price(475, None)).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(holds(&catalog).await, 475, "a price from now on holds at once");
}

#[tokio::test]
async fn a_price_cannot_be_dated_back_nor_set_twice() {
    let kit = Kit::new().await;
    let sku = SkuCode::parse(SKU).unwrap();
    let date = kit.now() + TimeDelta::days(1);
    let mut tx = kit.write("sku_price.create").await;
    let past = kit.now() - TimeDelta::seconds(1);
    assert_eq!(
        problem(sku_price_create(&mut tx, &sku, price(1, Some(past))).await).code,
        Code::ValidationError
    );
    sku_price_create(&mut tx, &sku, price(1, Some(date))).await.unwrap();
    assert_eq!(
        problem(sku_price_create(&mut tx, &sku, price(2, Some(date))).await).code,
        Code::AlreadyExists
    );
    tx.roll_back().await;
    let mut tx = kit.write("sku_price.create").await;
    let vm = SkuCode::parse("compute-vm-small").unwrap();
    assert_eq!(problem(sku_price_create(&mut tx, &vm, price(1, None)).await).code, Code::ValidationError);
    let none = SkuCode::parse("none").unwrap();
    assert_eq!(problem(sku_price_create(&mut tx, &none, price(1, None)).await).code, Code::NotFound);
}

#[tokio::test]
async fn the_database_refuses_to_change_a_price() {
    let kit = Kit::new().await;
    for (role, sql) in [
        (Roles::System, "UPDATE sku_prices SET unit_price_minor = 1"),
        (Roles::System, "DELETE FROM sku_prices"),
        (Roles::Admin, "UPDATE sku_prices SET unit_price_minor = 1"),
        (Roles::Admin, "DELETE FROM sku_prices"),
        (Roles::App, "INSERT INTO sku_prices SELECT 'h100', now(), 'gpu_hour', 1, 'USD', now()"),
    ] {
        let mut conn = kit.test.conn(role).await;
        let sql = format!("SET default_transaction_read_only = off; {sql}");
        assert!(sqlx::raw_sql(sqlx::AssertSqlSafe(sql.clone())).execute(&mut conn).await.is_err(), "{sql}");
    }
}
