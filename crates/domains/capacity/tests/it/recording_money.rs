//! Money that writes into a table what it is told, in the transaction in which it is told: what is rolled back does not
//! count.

use async_trait::async_trait;
use capacity::{
    Money,
    service::money::{Depletion, Meter},
};
use chrono::{DateTime, Utc};
use kernel::{Failure, ids::AllocationId};
use pg::WriteTx;
use testkit::TestDb;

#[derive(Default)]
pub struct RecordingMoney {
    /// The units and the price that every meter must have.
    pub pinned: Option<(i32, i64)>,
}

pub async fn table_create(test: &TestDb) {
    test.sql(
        "CREATE TABLE test_meters (allocation uuid, what text);
         CREATE INDEX ON test_meters (allocation);
         GRANT SELECT, INSERT ON test_meters TO gpuaas_app, gpuaas_system",
    )
    .await;
}

async fn record(tx: &mut WriteTx, allocation: AllocationId, what: &str) -> Result<(), Failure> {
    let insert = sqlx::query("INSERT INTO test_meters VALUES ($1, $2)").bind(allocation.uuid()).bind(what);
    insert.execute(tx.conn()).await?;
    Ok(())
}

#[async_trait]
impl Money for RecordingMoney {
    async fn check_funds(&self, _: &mut WriteTx, _: &[Meter]) -> Result<Option<Depletion>, Failure> {
        Ok(None)
    }

    async fn hold(&self, _: &mut WriteTx, _: &[Meter]) -> Result<(), Failure> {
        Ok(())
    }

    async fn meter_open(&self, tx: &mut WriteTx, meter: &Meter, _: DateTime<Utc>) -> Result<(), Failure> {
        if let Some(pinned) = self.pinned {
            assert_eq!((meter.units, meter.unit_price_minor), pinned, "the pinned price");
        }
        record(tx, meter.allocation, "open").await
    }

    async fn meter_close(&self, tx: &mut WriteTx, id: AllocationId, _: DateTime<Utc>) -> Result<(), Failure> {
        record(tx, id, "close").await
    }

    async fn launch_failed(&self, tx: &mut WriteTx, id: AllocationId) -> Result<(), Failure> {
        record(tx, id, "launch_failed").await
    }
}
