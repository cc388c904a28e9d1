//! Invitations into an organization.

use endpoint::{Created, Empty, Endpoint, In, Json, NoContent, OrgPath, ScopeKind, Write, delete, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission, Secret, ids::InvitationId, policy::keys, secret::ShownOnce,
    text::Email,
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Given, InvitationPath};
use crate::{
    Identity,
    model::{
        invitation::{Invitation, InvitationLimits, InvitationState},
        membership::Member,
        role::MemberRole,
    },
    service::{
        invitations::{
            Invite, invitation_accept, invitation_create, invitation_get, invitation_list, invitation_revoke,
        },
        policy_cache::Where,
    },
};

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    vec![
        get(
            "/api/v1/orgs/{org_id}/invitations",
            "invitation_list",
            "List the invitations of an organization",
        )
        .in_scope(ScopeKind::Org)
        .needs(Permission::InvitationRead)
        .handle(identity.clone(), list),
        post("/api/v1/orgs/{org_id}/invitations", "invitation_create", "Invite somebody")
            .describe(
                "The response contains a token, which is shown only once; a user with an account accepts the \
                 invitation with it. If mail is configured, a link is sent to the address, which also allows \
                 signing up; otherwise pass the token on.",
            )
            .in_scope(ScopeKind::Org)
            .errors(&[Code::OwnershipRequired, Code::AlreadyExists, Code::Unprocessable, Code::QuotaExceeded])
            .needs(Permission::InvitationManage)
            .audited("invitation.create")
            .handle(identity.clone(), create),
        get("/api/v1/orgs/{org_id}/invitations/{invitation_id}", "invitation_get", "Show an invitation")
            .in_scope(ScopeKind::Org)
            .needs(Permission::InvitationRead)
            .handle(identity.clone(), show),
        delete(
            "/api/v1/orgs/{org_id}/invitations/{invitation_id}",
            "invitation_revoke",
            "Revoke an invitation",
        )
        .in_scope(ScopeKind::Org)
        .errors(&[Code::InvalidTransition, Code::Conflict])
        .needs(Permission::InvitationManage)
        .audited("invitation.revoke")
        .handle(identity.clone(), revoke),
        post("/api/v1/invitations/{invitation_id}/accept", "invitation_accept", "Accept an invitation")
            .describe(
                "Makes you a member, with the token of the invitation or the code of the mailed link. A \
                 wrong token or code gets the same response as an unknown invitation.",
            )
            .in_scope(ScopeKind::Invitation)
            .errors(&[Code::InvalidTransition, Code::AlreadyExists])
            .needs(Permission::InvitationAccept)
            .audited("invitation.accept")
            .handle(identity.clone(), accept),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only invitations in this state.
    #[serde(default)]
    state: Given<InvitationState>,
}

async fn list(
    _: Identity,
    mut tx: ReadTx,
    input: In<OrgPath, ListQuery, ()>,
) -> Result<Json<Page<Invitation>>, Failure> {
    let (state, page) = (input.query.state.0, &input.query.page);
    Ok(Json(invitation_list(&mut tx, input.path.org_id, state, page).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InvitationCreate {
    email: Email,
    role: MemberRole,
}

/// A new invitation with its token.
#[derive(Serialize, JsonSchema)]
struct InvitationCreated {
    #[serde(flatten)]
    invitation: Invitation,
    token: ShownOnce,
    /// The address that a mail with a link goes to. Missing where no mail is sent: pass the token on.
    #[serde(skip_serializing_if = "Option::is_none")]
    mailed_to: Option<String>,
}

async fn create(
    identity: Identity,
    mut tx: Write,
    input: In<OrgPath, Empty, Json<InvitationCreate>>,
) -> Result<Created<InvitationCreated>, Failure> {
    let (org, body) = (input.path.org_id, input.body.0);
    let place = Where { org: Some(org), ..Where::default() };
    let setting = |key| identity.policies().setting_at(key, place);
    let limits = InvitationLimits {
        ttl_days: setting(keys::INVITATION_TTL_DAYS).await?,
        per_day: setting(keys::INVITATIONS_PER_DAY).await?,
        per_address_per_day: setting(keys::INVITATIONS_PER_ADDRESS_PER_DAY).await?,
    };
    let invite = Invite { email: body.email, role: body.role, invited_by: input.access.user()? };
    let (invitation, token) = invitation_create(&mut tx, org, invite, limits, input.access.roles()).await?;
    let mailed_to = identity.links().is_mailed().then(|| invitation.email.clone());
    Ok(Created(InvitationCreated { invitation, token: ShownOnce::new(token), mailed_to }))
}

async fn show(
    _: Identity,
    mut tx: ReadTx,
    input: In<InvitationPath, Empty, ()>,
) -> Result<Json<Invitation>, Failure> {
    Ok(Json(invitation_get(&mut tx, input.path.org_id, input.path.invitation_id).await?))
}

async fn revoke(
    _: Identity,
    mut tx: Write,
    input: In<InvitationPath, Empty, ()>,
) -> Result<NoContent, Failure> {
    invitation_revoke(&mut tx, input.path.org_id, input.path.invitation_id, input.if_match).await?;
    Ok(NoContent)
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct AcceptPath {
    invitation_id: InvitationId,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InvitationAccept {
    /// The token of the invitation, or the code that the mailed link shows.
    token: Secret,
}

async fn accept(
    identity: Identity,
    mut tx: Write,
    input: In<AcceptPath, Empty, Json<InvitationAccept>>,
) -> Result<Json<Member>, Failure> {
    let (org, user) = (input.access.org()?, input.access.user()?);
    let token = &input.body.0.token;
    Ok(Json(invitation_accept(&mut tx, identity.links(), org, input.path.invitation_id, token, user).await?))
}
