//! A fleet in a real database, and requests that are placed in it as tenants place them.

use std::fmt::Write as _;

use capacity::{
    model::placement::{Packing, Request},
    service::placing::{PlacedMember, place_in},
};
use fleet::api::SlotKind;
use kernel::{
    Ambient, CorrelationId, Failure, Permission, Role,
    ids::{OrgId, ProjectId, SlotId},
};
use pg::{Actor, ActorKind, Db, Origin, Permit, Roles, Scope, WriteTx};
use testkit::TestDb;
use uuid::Uuid;

use super::fleets::{FleetPlan, REGIONS, SKU, Use, labels, node_id, pool, slot_id, vf};

pub const MODEL: &str = "M1";

pub struct Kit {
    pub test: TestDb,
    pub db: Db,
}

impl Kit {
    pub async fn new() -> Self {
        let test = TestDb::create().await;
        let db = Db::new(test.connect.clone(), 24, 2, Ambient::system());
        let mut sql = String::new();
        for region in REGIONS {
            write!(sql, "INSERT INTO regions VALUES ('{region}', '{region}', 1, now(), now());").unwrap();
        }
        let pool = pool().uuid();
        write!(sql, "INSERT INTO node_pools VALUES ('{pool}', 'east', 'p', '', 1, now(), now());").unwrap();
        test.sql(&sql).await;
        Self { test, db }
    }

    /// Makes the database's fleet this one.
    pub async fn load(&self, fleet: &FleetPlan) {
        let mut sql =
            "DELETE FROM node_resource_slots; DELETE FROM node_capacity; DELETE FROM nodes;".to_owned();
        for (at, node) in fleet.nodes.iter().enumerate() {
            let id = node_id(at).uuid();
            let pool = if node.pooled { format!("'{}'", pool().uuid()) } else { "NULL".to_owned() };
            let labels =
                if node.labelled { serde_json::to_string(&labels()).unwrap() } else { "{}".to_owned() };
            // Offline, or active and cordoned.
            let (state, cordon) = match (node.placeable, at % 2) {
                (true, _) => ("active", "NULL"),
                (false, 0) => ("offline", "NULL"),
                (false, _) => ("active", "'work'"),
            };
            let eligibility = match (node.eligible, at % 2) {
                (true, 0) => String::new(),
                (true, _) => format!("other,{SKU}"),
                (false, _) => "other".to_owned(),
            };
            write!(
                sql,
                "INSERT INTO nodes (id, hostname, region, pool_id, labels, sku_eligibility, state, cordon_reason,
                     state_changed_at, created_at, updated_at)
                 VALUES ('{id}', 'host-{at}', '{}', {pool}, '{labels}', '{{{eligibility}}}', '{state}', {cordon},
                     now(), now(), now());",
                node.region
            )
            .unwrap();
            for (index, slot) in node.slots.iter().enumerate() {
                sql += &slot_row(fleet, at, index, slot);
            }
            if let Some(busy) = node.other {
                let (kind, state) =
                    (if fleet.gpu { "cpu" } else { "gpu" }, if busy { "in_use" } else { "available" });
                write!(
                    sql,
                    "INSERT INTO node_resource_slots (id, node_id, slot_index, kind, model, state, health, fabric_mode,
                         fabric_vf, created_at, updated_at)
                     VALUES (gen_random_uuid(), '{id}', 99, '{kind}', 'other', '{state}', 'healthy', 'vf', 'x',
                         now(), now());"
                )
                .unwrap();
            }
        }
        self.test.sql(&sql).await;
    }

    pub async fn begin(&self) -> WriteTx {
        self.db.write(self.permit(), "test.place").await.unwrap()
    }

    /// As a member of some project: whoever places is a tenant.
    fn permit(&self) -> Permit {
        let id = |number| Uuid::from_u128(number);
        let scope = Scope::Project(OrgId::from(id(1)), ProjectId::from(id(2)));
        let actor = Actor { kind: ActorKind::User, id: Some(id(3)), role: "project_member" };
        let granted = Role::ProjectMember.permissions().authorize(Permission::AllocationCreate).unwrap();
        let origin = Origin::internal(CorrelationId(self.db.ambient().uuid()));
        Permit::granted(actor, scope, origin, granted)
    }

    /// Places without effect.
    pub async fn try_place(
        &self,
        fleet: &FleetPlan,
        request: &Request,
        packing: Packing,
    ) -> Result<Vec<PlacedMember>, Failure> {
        let mut tx = self.begin().await;
        let placed = place_in(&mut tx, kind(fleet), MODEL, request, packing).await;
        tx.roll_back().await;
        placed
    }

    /// Places and reserves, as a launch does.
    pub async fn take(&self, request: &Request, packing: Packing) -> Result<Vec<SlotId>, Failure> {
        let mut tx = self.begin().await;
        let placed = place_in(&mut tx, SlotKind::Gpu, MODEL, request, packing).await?;
        let slots: Vec<SlotId> = placed.iter().flat_map(|member| member.placed.slots.clone()).collect();
        let ids: Vec<Uuid> = slots.iter().map(|slot| slot.uuid()).collect();
        let reserved: i32 = sqlx::query_scalar("SELECT fleet_slots_reserve($1, now())")
            .bind(&ids)
            .fetch_one(tx.conn())
            .await
            .unwrap();
        assert_eq!(usize::try_from(reserved), Ok(slots.len()), "a slot was held and is not free");
        tx.commit(None).await.unwrap();
        Ok(slots)
    }

    pub async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.test.conn(Roles::Admin).await).await.unwrap()
    }

    pub async fn deadlocks(&self) -> i64 {
        self.number("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").await
    }
}

pub fn kind(fleet: &FleetPlan) -> SlotKind {
    if fleet.gpu { SlotKind::Gpu } else { SlotKind::Cpu }
}

fn slot_row(fleet: &FleetPlan, node: usize, index: usize, slot: &super::fleets::SlotPlan) -> String {
    let usage = fleet.usage(slot);
    // Each way of being unused and not ready, by turns.
    let (state, health) = match usage {
        Use::Used => (["reserved", "in_use"][index % 2], "healthy"),
        Use::Cleaning => ("cleaning", "healthy"),
        Use::Blocked => [
            ("discovered", "unknown"),
            ("approved", "healthy"),
            ("cleanup_blocked", "healthy"),
            ("quarantined", "failed"),
            ("available", "degraded"),
        ][index % 5],
        Use::Free | Use::FarFabric | Use::NoFabric => ("available", "healthy"),
    };
    let numa = slot.numa.map_or("NULL".to_owned(), |numa| numa.to_string());
    let far = match (usage, slot.numa) {
        (Use::FarFabric, Some(numa)) => (1 - numa).to_string(),
        _ => "NULL".to_owned(),
    };
    let fabric = match usage {
        Use::NoFabric => "'none', NULL".to_owned(),
        _ => format!("'vf', '{}'", vf(index)),
    };
    format!(
        "INSERT INTO node_resource_slots (id, node_id, slot_index, kind, model, state, health, numa_node, fabric_numa,
             fabric_mode, fabric_vf, pci_address, nvme_device, created_at, updated_at)
         VALUES ('{}', '{}', {index}, '{}', '{MODEL}', '{state}', '{health}', {numa}, {far}, {fabric},
             '0000:{index:02x}:00.0', 'nvme-{index}', now(), now());",
        slot_id(node, index).uuid(),
        node_id(node).uuid(),
        kind(fleet),
    )
}
