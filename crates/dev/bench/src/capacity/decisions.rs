//! The decision: candidates from the database, the pure placement, and the reservation, in fleets of several sizes.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use capacity::{
    model::placement::{Packing, Request, Take},
    service::placing::{PlacedMember, place_in},
};
use kernel::{
    Ambient, Code, CorrelationId, Failure, Permission, Role,
    ids::{OrgId, ProjectId, SlotId},
};
use pg::{Actor, ActorKind, Connect, Db, Origin, Permit, Scope, WriteTx};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Bench, KIND, MODEL, SKU, rows};
use crate::{product::Product, times::Times};

/// Decisions before the first that counts: connections, plans, pages.
const WARM_UP: u32 = 40;
const PORT: u16 = 5432;
/// As large as the order that a launch seals.
const ORDER_BYTES: usize = 1500;

/// Allocations belong to a project that lives.
const TENANT: &str = "WITH org AS (
        INSERT INTO organizations (id, kind, slug, name, created_at, updated_at)
            VALUES ($1, 'enterprise', 'bench-decisions', 'Decisions', now(), now())
    )
    INSERT INTO projects (id, org_id, slug, name, created_at, updated_at)
        VALUES ($2, $1, 'bench-decisions', 'Decisions', now(), now())";

const RESERVE: &str = "SELECT capacity_reserve(now(), ROW($1, $2, 'user', $3, NULL, NULL, $4, $5, $6, $7,
    '{\"name\": \"bench\", \"gpus\": 1, \"vcpus\": 24, \"memory_mib\": 65536, \"image\": \"ubuntu-24.04\"}', 'gpu_hour', 450, 'USD',
    'user-revoke')::launch_terms, ROW(1000000000, 1000000000, 1000000000)::reserve_limits, ROW(ARRAY[$8::uuid], ARRAY['bench'], ARRAY[$9::uuid], ARRAY['gpu20000'],
    ARRAY[20000], ARRAY[$10::text], ARRAY[$11::integer], ARRAY[$12::bytea])::allocation_batch,
    ROW(array_fill($8::uuid, ARRAY[cardinality($13)]),
    array_fill($9::uuid, ARRAY[cardinality($13)]), $13::uuid[])::claim_batch, ROW('user', $3, $14)::write_origin)";

/// What is asked for, by turns.
const FITTING: [Take; 5] = [
    Take::Slots { slots: 1 },
    Take::Slots { slots: 2 },
    Take::Slots { slots: 4 },
    Take::Slots { slots: 8 },
    Take::Whole { slots: 8 },
];
const REFUSED: [Take; 4] =
    [Take::Slots { slots: 2 }, Take::Slots { slots: 4 }, Take::Slots { slots: 8 }, Take::Whole { slots: 8 }];

/// A member of some project: whoever places is a tenant.
struct Tenant {
    db: Db,
    org: OrgId,
    project: ProjectId,
    person: Uuid,
}

fn failure_error(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Problem(problem) => anyhow!("refused: {problem:?}"),
        Failure::Internal(error) => anyhow!(error),
        Failure::Bug(bug) => anyhow!("{bug}"),
    }
}

impl Bench {
    pub async fn decisions(&mut self, product: &Product, db: &mut PgConnection) -> anyhow::Result<()> {
        let socket = product.socket_dir()?;
        let connect = Connect::builtin(Path::new(&socket), PORT, "gpuaas_super", "gpuaas");
        let ambient = Ambient::system();
        let (org, project, person) = (ambient.id(), ambient.id(), ambient.uuid());
        let tenant = Tenant { db: Db::new(connect, 2, 1, ambient), org, project, person };
        sqlx::query(TENANT).bind(tenant.org.uuid()).bind(tenant.project.uuid()).execute(&mut *db).await?;
        let mut grown: Vec<[Times; 2]> = Vec::new();
        for slots in self.options.slots.clone() {
            self.report.step(&format!("decisions among {slots} slots"));
            rows::grow(db, slots).await?;
            let fits = tenant.times(self.options.decisions, rows::OPEN, &FITTING).await?;
            let refused = tenant.times(self.options.decisions, rows::FULL, &REFUSED).await?;
            for (what, times) in [("placed and reserved", &fits), ("refused, with the reason", &refused)] {
                let name = format!("decision among {slots} slots: {what}, {} times", times.count());
                self.report.figure(&name, times.text(), "p99 < 10 ms among 100000");
            }
            grown.push([fits, refused]);
        }
        if let (Some(first), Some(last)) = (grown.first(), grown.last()) {
            let ratio = |n: usize, share| last[n].quantile(share) / first[n].quantile(share);
            self.report.figure(
                "decision in the largest of these fleets ÷ in the smallest",
                format!(
                    "placed p50 {:.2}, p99 {:.2}; refused p50 {:.2}, p99 {:.2}",
                    ratio(0, 0.5),
                    ratio(0, 0.99),
                    ratio(1, 0.5),
                    ratio(1, 0.99)
                ),
                "≤ 2",
            );
        }
        tenant.db.close();
        Ok(())
    }
}

impl Tenant {
    async fn times(&self, count: u32, region: &str, takes: &[Take]) -> anyhow::Result<Times> {
        let mut times = Vec::new();
        for (n, take) in (0..WARM_UP + count).zip(takes.iter().cycle()) {
            let time = self.decide(region, *take).await?;
            if n >= WARM_UP {
                times.push(time);
            }
        }
        Ok(Times::new(times))
    }

    /// One decision, which is taken back; the time until it was made.
    async fn decide(&self, region: &str, take: Take) -> anyhow::Result<Duration> {
        let request = Request {
            take,
            count: 1,
            regions: vec![region.to_owned()],
            pool: None,
            labels: BTreeMap::new(),
            sku: SKU.to_owned(),
            other_sizes: vec![1, 2, 4, 8],
        };
        let mut tx = self.db.write(self.permit()?, "bench.decide").await?;
        let begun = Instant::now();
        let placed = place_in(&mut tx, KIND, MODEL, &request, Packing::Pack).await;
        match (placed, region == rows::OPEN) {
            (Ok(members), true) => {
                for member in &members {
                    self.reserve(&mut tx, &request, member).await?;
                }
            }
            (Err(Failure::Problem(problem)), false) if problem.code == Code::SkuUnavailable => {}
            (Err(failure), _) => return Err(failure_error(failure)),
            (Ok(_), false) => bail!("{take:?} fits in region {region}, and should not"),
        }
        let time = begun.elapsed();
        tx.roll_back().await;
        Ok(time)
    }

    async fn reserve(
        &self,
        tx: &mut WriteTx,
        request: &Request,
        member: &PlacedMember,
    ) -> anyhow::Result<()> {
        let (allocation, correlation) = (self.db.ambient().uuid(), tx.permit().origin().correlation_id.0);
        let shape = if matches!(request.take, Take::Whole { .. }) { "baremetal" } else { "gpu_slice" };
        let slots: Vec<Uuid> = member.placed.slots.iter().copied().map(SlotId::uuid).collect();
        let answer: String = sqlx::query_scalar(RESERVE)
            .bind(self.org.uuid())
            .bind(self.project.uuid())
            .bind(self.person)
            .bind(SKU)
            .bind(shape)
            .bind(&member.placed.region)
            .bind(i32::try_from(slots.len())?)
            .bind(allocation)
            .bind(member.placed.node.uuid())
            .bind(&member.ssh_host)
            .bind(member.ssh_port)
            .bind(vec![7_u8; ORDER_BYTES])
            .bind(slots)
            .bind(correlation)
            .fetch_one(tx.conn())
            .await?;
        ensure!(answer == "ok", "what was placed could not be reserved: {answer}");
        Ok(())
    }

    fn permit(&self) -> anyhow::Result<Permit> {
        let scope = Scope::Project(self.org, self.project);
        let actor = Actor { kind: ActorKind::User, id: Some(self.person), role: "project_member" };
        let granted = Role::ProjectMember.permissions().authorize(Permission::AllocationCreate);
        let granted = granted.context("members of a project may launch")?;
        let origin = Origin::internal(CorrelationId(self.db.ambient().uuid()));
        Ok(Permit::granted(actor, scope, origin, granted))
    }
}
