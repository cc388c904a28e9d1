//! SQL: the only writer of the fleet's tables.

pub mod agent_tasks;
pub mod census;
pub mod certificates;
pub mod contacts;
pub mod credits;
pub mod dial;
pub mod dispatch;
pub mod findings;
pub mod health_rules;
pub mod history;
pub mod inventories;
pub mod logs;
pub mod node_trust;
pub mod nodes;
pub mod onboarding;
pub mod pools;
pub mod regions;
pub mod slot_steps;
pub mod slots;
pub mod task_views;
pub mod tasks;
pub mod tokens;
pub mod topologies;
pub mod validations;

use kernel::{Failure, Problem};

use crate::model::{
    finding::FindingState,
    log::LogLevel,
    node::{NodeState, Serves},
    onboarding::OnboardingState,
    slot::{FabricMode, SlotHealth, SlotKind, SlotState},
    task::TaskState,
    token::TokenPurpose,
};

pg::named_columns! {
    FabricMode, FindingState, LogLevel, NodeState, OnboardingState, Serves, SlotHealth, SlotKind, SlotState,
    TaskState, TokenPurpose,
}

/// What to say when a constraint is violated.
type Meaning<'a> = (&'a str, fn() -> Problem);

/// Turns a violated constraint into what the client may know of it; anything else stays internal.
fn violated(error: sqlx::Error, known: &[Meaning<'_>]) -> Failure {
    let name = pg::constraint_violated(&error).unwrap_or_default();
    match known.iter().find(|(constraint, _)| *constraint == name) {
        Some((_, problem)) => problem().into(),
        None => error.into(),
    }
}
