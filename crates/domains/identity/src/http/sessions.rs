//! `/me/sessions`: where you are signed in.

use endpoint::{Empty, Endpoint, In, Json, NoContent, ScopeKind, Write, delete, get};
use kernel::{Failure, Page, PageQuery, Permission, ids::SessionId};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::session;
use crate::{
    Identity,
    model::person::Session,
    service::sessions::{session_list, session_revoke, session_revoke_others},
};

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    vec![
        get("/api/v1/me/sessions", "session_list", "List your sessions")
            .in_scope(ScopeKind::Person)
            .needs(Permission::SelfRead)
            .handle(identity.clone(), list),
        delete("/api/v1/me/sessions", "session_revoke_others", "Revoke all your other sessions")
            .describe(
                "Revokes all sessions except the current one, and signs browsers out of the built-in issuer. Tokens stop working within five seconds.",
            )
            .in_scope(ScopeKind::Person)
            .needs(Permission::SessionRevoke)
            .audited("session.revoke_others")
            .handle(identity.clone(), revoke_others),
        delete("/api/v1/me/sessions/{session_id}", "session_revoke", "Revoke one of your sessions")
            .describe("Its tokens stop working within five seconds.")
            .in_scope(ScopeKind::Person)
            .needs(Permission::SessionRevoke)
            .audited("session.revoke")
            .handle(identity.clone(), revoke),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct SessionPath {
    session_id: SessionId,
}

async fn list(
    identity: Identity,
    mut tx: ReadTx,
    input: In<Empty, PageQuery, ()>,
) -> Result<Json<Page<Session>>, Failure> {
    let (user, current) = (input.access.user()?, session(&input.access)?);
    let now = identity.db().ambient().now();
    Ok(Json(session_list(&mut tx, user, current, &input.query, now).await?))
}

async fn revoke_others(
    identity: Identity,
    mut tx: Write,
    input: In<Empty, Empty, ()>,
) -> Result<NoContent, Failure> {
    let issuer = &identity.auth().issuer;
    session_revoke_others(&mut tx, input.access.user()?, session(&input.access)?, issuer).await?;
    Ok(NoContent)
}

async fn revoke(_: Identity, mut tx: Write, input: In<SessionPath, Empty, ()>) -> Result<NoContent, Failure> {
    let (user, current) = (input.access.user()?, session(&input.access)?);
    session_revoke(&mut tx, user, input.path.session_id, current).await?;
    Ok(NoContent)
}
