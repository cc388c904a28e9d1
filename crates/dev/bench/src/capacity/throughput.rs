//! Reservations through the API, beside the same statements from pgbench.

use anyhow::ensure;
use serde_json::json;
use sqlx::PgConnection;
use testkit::Api;
use uuid::Uuid;

use super::{
    Bench, SKU, rows,
    statements::{self, Home, Sample},
};
use crate::{
    load,
    product::{Product, fund, org_with_project},
    report::{Peer, median},
    scenarios::uuid_of,
};

/// The least share of pgbench's rate that we mean to reach.
const AIM: f64 = 0.6;

async fn homes(admin: &Api, db: &mut PgConnection, prefix: &str, count: u32) -> anyhow::Result<Vec<Home>> {
    let mut homes = Vec::new();
    for n in 0..count {
        let (org, project) = org_with_project(admin, &format!("{prefix}-{n}")).await;
        let project_id = project["id"].as_str().unwrap_or_default().to_owned();
        let org = uuid_of(&org["id"])?;
        fund(db, org).await?;
        homes.push(Home { org, project: uuid_of(&project["id"])?, project_id });
    }
    Ok(homes)
}

impl Bench {
    pub async fn reservations(
        &mut self,
        product: &Product,
        admin: &Api,
        mut db: PgConnection,
    ) -> anyhow::Result<()> {
        let user = uuid_of(&admin.get("/api/v1/me").await.expect(200)["id"])?;
        for clients in self.options.clients.clone() {
            // Each their own organization, whose audit is a chain of its own; and all in one.
            for orgs in [clients, 1] {
                self.report.step(&format!("reservations, {clients} clients, {orgs} organization(s)"));
                let homes = homes(admin, &mut db, &format!("launch-{clients}-{orgs}"), orgs).await?;
                self.reserve(product, admin, &mut db, (user, clients), &homes).await?;
            }
        }
        Ok(())
    }

    async fn reserve(
        &mut self,
        product: &Product,
        admin: &Api,
        db: &mut PgConnection,
        (user, clients): (Uuid, u32),
        homes: &[Home],
    ) -> anyhow::Result<()> {
        let orgs = homes.len();
        for home in homes {
            let path = format!("/api/v1/projects/{}/allocations", home.project_id);
            let body = json!({ "sku": SKU, "gpus": 1, "region": rows::OPEN });
            admin.post_once(&home.org.to_string(), &path, body).await.expect(202);
        }
        let sample = Sample::of_newest(db).await?;
        let settings = statements::settings(user, homes);
        let name = format!("reserve-{clients}-{orgs}");
        let script = product.file(&format!("{name}.sql"), &statements::sql(user, homes, &sample))?;
        let token = admin.token.as_deref().unwrap_or_default();
        let requests = product.file(&format!("{name}.lua"), &statements::lua(homes, token))?;
        let (pgbench, socket) = (load::find_pgbench()?, product.socket_dir()?);
        let (seconds, both) = (self.seconds, (clients, self.seconds));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..self.pairs {
            rows::capacity_free(db).await?;
            let work = load::wrk(&product.base, &[], Some(&requests), both);
            ours.push(product.measure(seconds, product.pid(), work).await?);
            ensure!(rows::free(db).await? > 0, "the fleet was used up: measure in a larger one");
            rows::capacity_free(db).await?;
            let work = load::pgbench(&pgbench, &socket, &settings, &script, both);
            theirs.push(product.measure(seconds, 0, work).await?);
            ensure!(rows::free(db).await? > 0, "the fleet was used up: measure in a larger one");
        }
        ensure!(rows::unmetered(db).await? == 0, "something was reserved and no money set aside for it");
        let slots = self.options.slots.last().copied().unwrap_or_default();
        let operation = format!(
            "POST allocation: placed and reserved among {slots} slots, {clients} clients, {orgs} organization(s)"
        );
        let peer = Peer { name: "pgbench, same SQL", sample: median(&theirs), aim: Some(AIM) };
        self.report.compare(&operation, median(&ours), &[peer]);
        Ok(())
    }
}
