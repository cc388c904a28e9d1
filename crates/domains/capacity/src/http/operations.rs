//! What people do with an allocation: release it, try that again, restart it.

use endpoint::{Accepted, Empty, Endpoint, In, ScopeKind, Write, post};
use kernel::{Code, Failure, Permission};

use super::allocations::AllocationPath;
use crate::{
    Capacity,
    model::allocation::AllocationView,
    service::release::{Asked, allocation_release, allocation_restart, allocation_retry},
};

const ERRORS: &[Code] = &[Code::Conflict, Code::InvalidTransition, Code::OwnershipRequired];

pub fn endpoints(capacity: &Capacity) -> Vec<Endpoint> {
    vec![
        post(
            "/api/v1/projects/{project_id}/allocations/{allocation_id}/release",
            "allocation_release",
            "Release an allocation",
        )
        .describe(
            "Its meter stops immediately; the machine is cleaned and its capacity freed. A launch in \
             progress is cancelled and ends in `failed`. Idempotent.",
        )
        .in_scope(ScopeKind::Project)
        .errors(ERRORS)
        .needs(Permission::AllocationOperate)
        .audited("allocation.release")
        .handle(capacity.clone(), release),
        post(
            "/api/v1/projects/{project_id}/allocations/{allocation_id}/retry",
            "allocation_retry",
            "Retry a failed release",
        )
        .in_scope(ScopeKind::Project)
        .errors(ERRORS)
        .needs(Permission::AllocationOperate)
        .audited("allocation.retry")
        .handle(capacity.clone(), retry),
        post(
            "/api/v1/projects/{project_id}/allocations/{allocation_id}/restart",
            "allocation_restart",
            "Restart the machine of an allocation",
        )
        .describe("The machine, its account and keys stay the same; running processes are terminated.")
        .in_scope(ScopeKind::Project)
        .errors(ERRORS)
        .needs(Permission::AllocationOperate)
        .audited("allocation.restart")
        .handle(capacity.clone(), restart),
    ]
}

pub(super) fn asked<Q, B>(input: &In<AllocationPath, Q, B>) -> Asked {
    Asked {
        project: input.path.project_id,
        allocation: input.path.allocation_id,
        any: input.access.permissions().holds(Permission::AllocationOperateAny),
        if_match: input.if_match,
    }
}

type Input = In<AllocationPath, Empty, ()>;

async fn release(
    capacity: Capacity,
    mut tx: Write,
    input: Input,
) -> Result<Accepted<AllocationView>, Failure> {
    Ok(Accepted(allocation_release(&capacity, &mut tx, asked(&input)).await?.into()))
}

async fn retry(_: Capacity, mut tx: Write, input: Input) -> Result<Accepted<AllocationView>, Failure> {
    Ok(Accepted(allocation_retry(&mut tx, asked(&input)).await?.into()))
}

async fn restart(
    capacity: Capacity,
    mut tx: Write,
    input: Input,
) -> Result<Accepted<AllocationView>, Failure> {
    Ok(Accepted(allocation_restart(&capacity, &mut tx, asked(&input)).await?.into()))
}
