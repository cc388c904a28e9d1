//! An installation that charges: organizations get money and lose it, time is accrued, events are delivered.

use std::{ops::Deref, sync::Arc};

use billing::api::Balances;
use capacity::{Billed, Money, jobs::consumers};
use identity::api::Policies;
use kernel::ids::{AllocationId, OrgId};
use pg::Db;
use testkit::{TestDb, invariants};
use testmoney::{TestMoney, billing_start};

use super::kit::{GPUS, Kit};

/// Of what the kit launches, by the hour.
pub const RATE: i64 = 450 * GPUS as i64;

pub fn billed(db: &Db, policies: &Policies) -> Arc<dyn Money> {
    Arc::new(Billed(billing_start(db, policies)))
}

/// Money comes (or goes) as an administrator would have it.
pub async fn gain(db: &Db, org: OrgId, amount: i64) -> Balances {
    TestMoney::new(db).fund(org, amount).await
}

pub async fn balances(test: &TestDb, org: OrgId) -> Balances {
    TestMoney::new(&test.db).balances(org).await
}

pub async fn hold(test: &TestDb) {
    invariants::hold(test).await;
}

/// The kit, charging.
pub struct Bank(pub Arc<Kit>);

impl Deref for Bank {
    type Target = Kit;

    fn deref(&self) -> &Kit {
        &self.0
    }
}

impl Bank {
    /// An organization with so much, in a world where nothing is set aside for longer than an hour.
    pub async fn with(amount: i64) -> Self {
        let bank = Self(Kit::with(billed).await);
        gain(&bank.test.db, bank.org, amount).await;
        bank
    }

    pub async fn gain(&self, amount: i64) -> Balances {
        gain(&self.test.db, self.org, amount).await
    }

    pub async fn balances(&self) -> Balances {
        balances(&self.test, self.org).await
    }

    /// Time passes.
    pub fn later(&self, seconds: i64) {
        self.clock.advance(chrono::TimeDelta::seconds(seconds));
    }

    /// Everything that is due is posted, up to this second.
    pub async fn accrue(&self) {
        let now = self.test.db.ambient().now().to_rfc3339();
        for _ in 0..1000 {
            let accrued: i64 = self
                .one(&format!(
                    "SELECT coalesce(sum(accrued), 0)::bigint FROM meters_accrue(ARRAY['{}'::uuid], ARRAY[gen_random_uuid()], '{now}',
                         date_trunc('second', '{now}'::timestamptz), 1000, gen_random_uuid())",
                    self.org.uuid()
                ))
                .await;
            if accrued == 0 {
                return;
            }
        }
        panic!("there is always something to accrue");
    }

    /// Everything that was said is heard, and what is said because of that.
    pub async fn deliver(&self) {
        deliver(&self.0).await;
    }

    pub async fn meter(&self, id: AllocationId) -> String {
        self.one(&format!("SELECT state FROM meters WHERE allocation_id = '{}'", id.uuid())).await
    }

    /// What was charged for it, less what was given back.
    pub async fn charged(&self, id: AllocationId) -> i64 {
        self.one(&format!(
            "SELECT coalesce(-sum(amount_minor), 0)::bigint FROM ledger_lines l JOIN ledger_postings p USING (org_id, seq, posted_at)
             WHERE l.allocation_id = '{}' AND l.account IN ('prepaid', 'held')
                 AND p.kind IN ('usage', 'credit', 'correction')",
            id.uuid()
        ))
        .await
    }

    pub async fn events(&self, event_type: &str) -> i64 {
        self.one(&format!("SELECT count(*) FROM outbox_events WHERE event_type = '{event_type}'")).await
    }

    pub async fn standing(&self) -> String {
        self.one(&format!(
            "SELECT coalesce((SELECT state FROM billing_accounts WHERE org_id = '{}'), '')",
            self.org.uuid()
        ))
        .await
    }
}

pub async fn deliver(kit: &Kit) {
    let bus = bus::Bus::on_postgres(kit.test.db.clone(), kit.wake.clone());
    let (relay, runners) = (bus.relay(), consumers(&kit.capacity));
    let runners: Vec<_> = runners.into_iter().map(|consumer| bus.runner(consumer)).collect();
    // Whatever was tried again waits a little.
    for _ in 0..100 {
        let mut done = relay.relay_batch().await.unwrap();
        for runner in &runners {
            done += runner.run_once().await.unwrap();
        }
        let waiting: i64 = kit.one("SELECT count(*) FROM bus_deliveries").await;
        if done == 0 && waiting == 0 {
            return;
        }
        kit.clock.advance(chrono::TimeDelta::milliseconds(if done == 0 { 500 } else { 1 }));
    }
    panic!(
        "events are left: {}",
        kit.one::<String>("SELECT coalesce(string_agg(error, '; '), '') FROM dead_letters").await
    );
}
