//! What operators see and do: the outbox's backlog, and dead letters.

use endpoint::{Empty, Endpoint, In, Json, ScopeKind, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::DeadLetterId,
    text::{Reason, Term},
};
use pg::{Db, ReadTx};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    dead_letter::{self, DeadLetter, DeadLetterDetail, Filter, State},
    outbox::{self, Outbox, OutboxState},
};

#[derive(Debug, Deserialize, JsonSchema)]
struct OutboxQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only rows in this state.
    #[serde(default)]
    #[schemars(with = "OutboxState")]
    state: Option<OutboxState>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct DeadLetterQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only letters of this consumer.
    #[serde(default)]
    #[schemars(with = "Term")]
    consumer: Option<Term>,
    /// Only letters in this state.
    #[serde(default)]
    #[schemars(with = "State")]
    state: Option<State>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct DeadLetterPath {
    dead_letter_id: DeadLetterId,
}

/// Why a dead letter is given up.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeadLetterDiscard {
    reason: Reason,
}

pub fn endpoints(db: Db) -> Vec<Endpoint> {
    vec![
        get("/api/v1/platform/outbox", "outbox_list", "Show the outbox")
            .describe("Counts of the outbox and a page of unpublished events, oldest first.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformOpsRead)
            .handle(db, outbox_list),
        get("/api/v1/platform/dead-letters", "dead_letter_list", "List dead letters")
            .describe("Messages that a consumer failed to handle, newest first.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformOpsRead)
            .handle((), dead_letter_list),
        get("/api/v1/platform/dead-letters/{dead_letter_id}", "dead_letter_get", "Show a dead letter")
            .describe("The dead letter with the message itself.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformOpsRead)
            .handle((), dead_letter_get),
        post(
            "/api/v1/platform/dead-letters/{dead_letter_id}/requeue",
            "dead_letter_requeue",
            "Requeue a dead letter",
        )
        .describe("Delivers the message to its consumer again, immediately.")
        .in_scope(ScopeKind::Platform)
        .errors(&[Code::Conflict, Code::InvalidTransition])
        .needs(Permission::PlatformOpsManage)
        .audited("dead_letter.requeue")
        .handle((), dead_letter_requeue),
        post(
            "/api/v1/platform/dead-letters/{dead_letter_id}/discard",
            "dead_letter_discard",
            "Discard a dead letter",
        )
        .describe("Discards the message: its consumer never handles it.")
        .in_scope(ScopeKind::Platform)
        .errors(&[Code::Conflict, Code::InvalidTransition])
        .needs(Permission::PlatformOpsManage)
        .audited("dead_letter.discard")
        .handle((), dead_letter_discard),
    ]
}

async fn outbox_list(
    db: Db,
    mut tx: ReadTx,
    input: In<Empty, OutboxQuery, ()>,
) -> Result<Json<Outbox>, Failure> {
    let now = db.ambient().now();
    outbox::show(tx.conn(), now, input.query.state, &input.query.page).await.map(Json)
}

async fn dead_letter_list(
    (): (),
    mut tx: ReadTx,
    input: In<Empty, DeadLetterQuery, ()>,
) -> Result<Json<Page<DeadLetter>>, Failure> {
    let filter =
        Filter { consumer: input.query.consumer.map(|term| term.to_string()), state: input.query.state };
    dead_letter::list(tx.conn(), &filter, &input.query.page).await.map(Json)
}

async fn dead_letter_get(
    (): (),
    mut tx: ReadTx,
    input: In<DeadLetterPath, Empty, ()>,
) -> Result<Json<DeadLetterDetail>, Failure> {
    dead_letter::get(tx.conn(), input.path.dead_letter_id).await.map(Json)
}

async fn dead_letter_requeue(
    (): (),
    mut tx: Write,
    input: In<DeadLetterPath, Empty, ()>,
) -> Result<Json<DeadLetter>, Failure> {
    dead_letter::requeue(&mut tx, input.path.dead_letter_id, input.if_match).await.map(Json)
}

async fn dead_letter_discard(
    (): (),
    mut tx: Write,
    input: In<DeadLetterPath, Empty, Json<DeadLetterDiscard>>,
) -> Result<Json<DeadLetter>, Failure> {
    let reason = input.body.0.reason;
    dead_letter::discard(&mut tx, input.path.dead_letter_id, input.if_match, &reason).await.map(Json)
}
