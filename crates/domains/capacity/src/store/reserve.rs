//! Making allocations with their claims, all or none, in one round trip.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, Problem,
    ids::{GroupId, NodeId, SlotId},
};
use pg::WriteTx;
use uuid::Uuid;

use crate::model::allocation::Allocation;

/// What must not be exceeded, by anybody at any time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub org_gpus: i64,
    pub project_gpus: i64,
    pub person_allocations: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    Yes,
    /// A slot is no longer free. Nothing else was done.
    SlotTaken,
    /// The transaction must be rolled back.
    Over(Limit),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Org,
    Project,
    Person,
}

fn unknown(answer: &str) -> Failure {
    Failure::bug(format!("capacity_reserve answered {answer}"))
}

/// The answer does not say whose it is: who may launch may read the list.
fn name_taken(new: &[Allocation]) -> Problem {
    let text = match new {
        [one] => format!("A live allocation of this project is already named {}.", one.name),
        _ => "A live allocation of this project already has the name of a member of the group.".to_owned(),
    };
    Problem::new(Code::AlreadyExists, text)
        .detail("field", "name")
        .suggest("Choose another name, or release the allocation that has it.")
}

/// Writes new allocations, all of one product for one person, as they are given.
pub async fn reserve(
    tx: &mut WriteTx,
    new: &[Allocation],
    group: Option<(GroupId, &str)>,
    limits: Limits,
    now: DateTime<Utc>,
) -> Result<Reserved, Failure> {
    let Some(first) = new.first() else { return Err(unknown("nothing, because nothing was asked")) };
    let (actor, correlation) = (tx.permit().actor(), tx.permit().origin().correlation_id.0);
    let slots = || new.iter().flat_map(|a| a.slot_ids.iter().map(move |slot| (a, *slot)));
    let answer = sqlx::query_scalar!(
        r#"SELECT capacity_reserve($1,
            ROW($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)::launch_terms,
            ROW($17, $18, $19)::reserve_limits,
            ROW($20, $21, $22, $23, $24, $25, $26, $27)::allocation_batch,
            ROW($28, $29, $30)::claim_batch,
            ROW($31, $32, $33)::write_origin) AS "answer!""#,
        now,
        first.org_id.uuid(),
        first.project_id.uuid(),
        first.creator_kind.name(),
        first.creator_id,
        group.map(|(id, _)| id.uuid()) as Option<Uuid>,
        group.map(|(_, name)| name) as Option<&str>,
        first.sku,
        first.shape.name(),
        first.region,
        first.gpus,
        serde_json::to_value(&first.profile)?,
        first.price_unit.name(),
        first.unit_price_minor,
        first.currency,
        first.isolation_model.name(),
        limits.org_gpus,
        limits.project_gpus,
        limits.person_allocations,
        &new.iter().map(|a| a.id.uuid()).collect::<Vec<_>>(),
        &new.iter().map(|a| a.name.clone()).collect::<Vec<_>>(),
        &new.iter().map(|a| NodeId::uuid(a.node_id)).collect::<Vec<_>>(),
        &new.iter().map(|a| a.username.clone()).collect::<Vec<_>>(),
        &new.iter().map(|a| a.uid).collect::<Vec<_>>(),
        &new.iter().map(|a| a.ssh_host.clone()).collect::<Vec<_>>(),
        &new.iter().map(|a| a.ssh_port).collect::<Vec<_>>(),
        &new.iter().map(|a| a.work_order.clone()).collect::<Vec<_>>(),
        &slots().map(|(a, _)| a.id.uuid()).collect::<Vec<_>>(),
        &slots().map(|(a, _)| NodeId::uuid(a.node_id)).collect::<Vec<_>>(),
        &slots().map(|(_, slot)| SlotId::uuid(slot)).collect::<Vec<_>>(),
        actor.kind.name(),
        actor.id as Option<Uuid>,
        correlation,
    )
    .fetch_one(tx.conn())
    .await
    .map_err(|error| match pg::constraint_violated(&error) {
        // Deleted after the request was let in.
        Some("allocations_live_project") => Problem::not_found("project").into(),
        Some("allocations_live_name") => name_taken(new).into(),
        _ => Failure::from(error),
    })?;
    Ok(match answer.as_str() {
        "ok" => Reserved::Yes,
        "slot_taken" => Reserved::SlotTaken,
        "org" => Reserved::Over(Limit::Org),
        "project" => Reserved::Over(Limit::Project),
        "person" => Reserved::Over(Limit::Person),
        other => return Err(unknown(other)),
    })
}
