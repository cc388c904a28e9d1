//! `/me`: the signed-in person.

use endpoint::{Caller, Empty, Endpoint, In, Json, ScopeKind, Write, get, patch};
use kernel::{Code, Failure, Permission, Problem, text::Name};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Given;
use crate::{
    Identity,
    model::person::{Me, User, WhoAmI},
    service::me::{CallerGrants, me_get, me_update, whoami_get},
};

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    vec![
        get("/api/v1/me", "me_get", "Show the current user")
            .in_scope(ScopeKind::Person)
            .needs(Permission::SelfRead)
            .handle(identity.clone(), show),
        get("/api/v1/whoami", "whoami_get", "Show who a token stands for")
            .describe("For users and for service accounts.")
            .in_scope(ScopeKind::Person)
            .needs(Permission::SelfIdentify)
            .handle(identity.clone(), whoami),
        patch("/api/v1/me", "me_update", "Change your name")
            .in_scope(ScopeKind::Person)
            .errors(&[Code::Conflict])
            .needs(Permission::SelfUpdate)
            .audited("me.update")
            .handle(identity.clone(), update),
    ]
}

async fn show(_: Identity, mut tx: ReadTx, input: In<Empty, Empty, ()>) -> Result<Json<Me>, Failure> {
    let Some(Caller::User { id, session, grants }) = input.access.caller() else {
        return Err(Problem::not_found("user").into());
    };
    let projects = grants.projects.iter().map(|(id, role)| (*id, *role)).collect();
    let caller = CallerGrants { user: *id, session: *session, platform: grants.platform.clone(), projects };
    Ok(Json(me_get(&mut tx, caller).await?))
}

async fn whoami(
    identity: Identity,
    mut tx: ReadTx,
    input: In<Empty, Empty, ()>,
) -> Result<Json<WhoAmI>, Failure> {
    let caller = input.access.caller().ok_or_else(|| Problem::from_code(Code::TokenMissing))?;
    Ok(Json(whoami_get(identity.db(), &mut tx, caller).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MeUpdate {
    #[serde(default)]
    name: Given<Name>,
}

async fn update(
    _: Identity,
    mut tx: Write,
    input: In<Empty, Empty, Json<MeUpdate>>,
) -> Result<Json<User>, Failure> {
    let user = input.access.user()?;
    Ok(Json(me_update(&mut tx, user, input.body.0.name.0, input.if_match).await?))
}
