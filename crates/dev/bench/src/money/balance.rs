//! A balance, read from a short ledger and from a long one.

use anyhow::ensure;
use serde_json::Value;
use sqlx::{Executor as _, PgConnection};
use uuid::Uuid;

use super::{Bench, quiet_product};
use crate::{
    load::{self, CLIENTS},
    product::{Product, fund, org_with_project},
    report::{Peer, Sample, median},
    scenarios::uuid_of,
};

const SHORT: u32 = 10;
/// So much longer may a read of the long ledger take.
const AIM: f64 = 1.5;
/// The long ledger goes back so far, a part of the tables for each month.
const MONTHS: i32 = 24;
const AT_ONCE: u32 = 1_000_000;

const PARTS: &str = "SELECT month_ensure('ledger_postings', at)
    FROM generate_series(now() - make_interval(months => $1), now(), '1 week') AS at";
/// Postings as usage leaves them. Their lines are left out: nobody who reads a balance looks at one.
const POSTINGS: &str = "INSERT INTO ledger_postings (org_id, seq, posted_at, id, kind, currency, reason, actor_kind, correlation_id,
        lines, lines_digest, prepaid_after, held_after, promo_after, disputed_after, prev_hash, hash)
    SELECT $1, n, $5 - make_interval(months => $6) * (1 - n::float8 / $4),
        (lpad(to_hex(1600000000000 + n), 12, '0') || substr(md5(n::text), 1, 20))::uuid, 'usage', 'USD', 'metered use', 'system',
        md5('c' || n)::uuid, 2, sha256(int8send(-n)), 1000000000000 - n * 7, 0, 0, 0, sha256(int8send(n - 1)), sha256(int8send(n))
    FROM generate_series($2, $3) AS n";
const CHAIN: &str = "INSERT INTO ledger_chains (org_id, currency, seq, posted_at, hash)
    SELECT org_id, 'USD', seq, posted_at, hash FROM ledger_postings WHERE org_id = $1 AND seq = $2";

/// A rate, and the time that half of the reads took at most.
type Read = (Sample, f64);

fn middle(reads: &[Read]) -> Read {
    let mut halves: Vec<f64> = reads.iter().map(|read| read.1).collect();
    halves.sort_by(f64::total_cmp);
    let samples: Vec<Sample> = reads.iter().map(|read| read.0).collect();
    (median(&samples), halves.get(halves.len() / 2).copied().unwrap_or_default())
}

impl Bench {
    pub async fn balance(&mut self) -> anyhow::Result<()> {
        self.report.step("balances of a short ledger");
        let product = quiet_product().await?;
        let admin = product.administrator().await?;
        let mut db = product.database().await?;
        let short = org_with_project(&admin, "short").await.0["id"].clone();
        let long = org_with_project(&admin, "long").await.0["id"].clone();
        for _ in 0..SHORT {
            fund(&mut db, uuid_of(&short)?).await?;
        }
        let token = format!("authorization: Bearer {}", admin.token.clone().unwrap_or_default());
        let headers = [token];
        // Not counted: connections, plans, caches.
        self.read(&product, &short, &headers).await?;
        let mut alone = Vec::new();
        for _ in 0..self.pairs {
            alone.push(self.read(&product, &short, &headers).await?);
        }
        let entries = self.options.entries;
        self.report.step(&format!("balances beside a ledger of {entries} entries"));
        fill(&mut db, uuid_of(&long)?, entries).await?;
        let shown = admin.get(&path(&long)).await.expect(200);
        let left = 1_000_000_000_000 - 7 * i64::from(entries);
        ensure!(shown["prepaid_minor"] == left, "the balance of the long ledger is not its last: {shown}");
        self.read(&product, &long, &headers).await?;
        let (mut few, mut many) = (Vec::new(), Vec::new());
        for _ in 0..self.pairs {
            few.push(self.read(&product, &short, &headers).await?);
            many.push(self.read(&product, &long, &headers).await?);
        }
        let (alone, few, many) = (middle(&alone), middle(&few), middle(&many));
        let peers = [
            Peer { name: "10 entries, beside the long ledger", sample: few.0, aim: Some(1.0 / AIM) },
            Peer { name: "10 entries, before there was another", sample: alone.0, aim: Some(1.0 / AIM) },
        ];
        let operation = format!("GET balance from a ledger of {entries} entries, {CLIENTS} clients");
        self.report.compare(&operation, many.0, &peers);
        for (what, read) in [("beside it", few), ("before there was another", alone)] {
            let name = format!("balance of {entries} entries ÷ of {SHORT}, {what}");
            let text = format!(
                "p50 {:.2} ({:.2} ms ÷ {:.2} ms); CPU of both servers {:.2}, of Postgres alone {:.2}",
                many.1 / read.1,
                many.1,
                read.1,
                many.0.server_cpu() / read.0.server_cpu(),
                many.0.postgres_cpu / read.0.postgres_cpu
            );
            self.report.figure(&name, text, &format!("≤ {AIM:.2}"));
        }
        Ok(())
    }

    async fn read(&self, product: &Product, org: &Value, headers: &[String]) -> anyhow::Result<Read> {
        let url = format!("{}{}", product.base, path(org));
        let mut half = 0.0;
        let work = async {
            let (rate, time) = load::wrk_timed(&url, headers, None, (CLIENTS, self.seconds)).await?;
            half = time;
            Ok(rate)
        };
        let sample = product.measure(self.seconds, product.pid(), work).await?;
        Ok((sample, half))
    }
}

fn path(org: &Value) -> String {
    format!("/api/v1/orgs/{}/billing/balance", org.as_str().unwrap_or_default())
}

/// A ledger of so many entries, as rows: nobody could post them one after the other in time.
async fn fill(db: &mut PgConnection, org: Uuid, entries: u32) -> anyhow::Result<()> {
    sqlx::query(PARTS).bind(MONTHS).execute(&mut *db).await?;
    let end: chrono::DateTime<chrono::Utc> = sqlx::query_scalar("SELECT now()").fetch_one(&mut *db).await?;
    // The database's own checks want lines.
    db.execute("SET session_replication_role = replica").await?;
    let mut from = 1;
    while from <= entries {
        let to = entries.min(from.saturating_add(AT_ONCE - 1));
        sqlx::query(POSTINGS)
            .bind(org)
            .bind(i64::from(from))
            .bind(i64::from(to))
            .bind(f64::from(entries))
            .bind(end)
            .bind(MONTHS)
            .execute(&mut *db)
            .await?;
        from = to.saturating_add(1);
    }
    sqlx::query(CHAIN).bind(org).bind(i64::from(entries)).execute(&mut *db).await?;
    db.execute("SET session_replication_role = origin").await?;
    db.execute("VACUUM ANALYZE ledger_postings, ledger_chains").await?;
    db.execute("CHECKPOINT").await?;
    Ok(())
}
