//! Invitations into an organization.

use endpoint::{Created, Empty, Endpoint, In, Json, NoContent, OrgPath, ScopeKind, Write, delete, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission, Problem, Secret,
    ids::{InvitationId, ProjectId},
    policy::keys,
    secret::ShownOnce,
    text::Email,
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Given, InvitationPath};
use crate::{
    Identity,
    model::{
        invitation::{AcceptedWith, Invitation, InvitationLimits, InvitationState, ReceivedInvitation},
        membership::Member,
        role::MemberRole,
    },
    service::{
        invitations::{
            Invite, invitation_accept, invitation_create, invitation_decline, invitation_get,
            invitation_list, invitation_list_received, invitation_revoke,
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
                "The response contains a link, which is shown only once: whoever opens it in a browser signs in \
                 and joins, with the roles that you choose here. If mail is configured, another link is sent to \
                 the address, and only that one allows signing up; otherwise pass on the link of the response. \
                 The roles are given when the invitation is accepted, if you may still give them then.",
            )
            .in_scope(ScopeKind::Org)
            .errors(&[
                Code::OwnershipRequired,
                Code::AlreadyExists,
                Code::Unprocessable,
                Code::QuotaExceeded,
            ])
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
                "Makes you a member of the organization, and of the project if the invitation is for one. Needs \
                 the token of the invitation or the code of the mailed link, unless the invitation is for your own \
                 verified address. Whatever is wrong with the token, the response is that of an unknown invitation.",
            )
            .in_scope(ScopeKind::Invitation)
            .errors(&[Code::InvalidTransition, Code::AlreadyExists])
            .needs(Permission::InvitationAccept)
            .audited("invitation.accept")
            .handle(identity.clone(), accept),
        post("/api/v1/invitations/{invitation_id}/decline", "invitation_decline", "Decline an invitation")
            .describe("For invitations to your own verified address. The inviter sees that you declined.")
            .in_scope(ScopeKind::Invitation)
            .errors(&[Code::InvalidTransition])
            .needs(Permission::InvitationAccept)
            .audited("invitation.decline")
            .handle(identity.clone(), decline),
        get("/api/v1/me/invitations", "invitation_list_received", "List the invitations to you")
            .describe("Open invitations to your verified e-mail address, of all organizations.")
            .in_scope(ScopeKind::Person)
            .needs(Permission::SelfRead)
            .handle(identity.clone(), list_received),
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
    /// A project of the organization that the user also joins.
    #[serde(default)]
    project_id: Option<ProjectId>,
    /// The role in the project; `member` if missing.
    #[serde(default)]
    project_role: Option<MemberRole>,
}

impl InvitationCreate {
    fn project(&self) -> Result<Option<(ProjectId, MemberRole)>, Problem> {
        match (self.project_id, self.project_role) {
            (Some(project), role) => Ok(Some((project, role.unwrap_or(MemberRole::Member)))),
            (None, Some(_)) => Err(Problem::field("project_role", "needs project_id")),
            (None, None) => Ok(None),
        }
    }
}

/// A new invitation with its token.
#[derive(Serialize, JsonSchema)]
struct InvitationCreated {
    #[serde(flatten)]
    invitation: Invitation,
    token: ShownOnce,
    /// The address to pass on to a user who has an account; where no mail is sent, also to one who has none.
    link: ShownOnce,
    /// The address that a mail with a link goes to. Missing where no mail is sent: pass on the link of this response.
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
    let project = body.project()?;
    let invite = Invite { email: body.email, role: body.role, project, invited_by: input.access.user()? };
    let (invitation, token) = invitation_create(&mut tx, org, invite, limits, input.access.roles()).await?;
    let mailed_to = identity.links().is_mailed().then(|| invitation.email.clone());
    let link = ShownOnce::new(identity.links().link_to_pass_on(invitation.id, &token));
    Ok(Created(InvitationCreated { invitation, token: ShownOnce::new(token), link, mailed_to }))
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
    /// The token of the invitation, or the code that the mailed link shows. Not needed for an invitation to your own
    /// verified address.
    #[serde(default)]
    token: Option<Secret>,
}

async fn accept(
    identity: Identity,
    mut tx: Write,
    input: In<AcceptPath, Empty, Json<InvitationAccept>>,
) -> Result<Json<Member>, Failure> {
    let (org, user) = (input.access.org()?, input.access.user()?);
    let with = input.body.0.token.as_ref().map_or(AcceptedWith::OwnAddress, AcceptedWith::Secret);
    let at = (org, input.path.invitation_id);
    Ok(Json(invitation_accept(&mut tx, identity.links(), at, with, user).await?))
}

async fn decline(_: Identity, mut tx: Write, input: In<AcceptPath, Empty, ()>) -> Result<NoContent, Failure> {
    let (org, user) = (input.access.org()?, input.access.user()?);
    invitation_decline(&mut tx, org, input.path.invitation_id, user).await?;
    Ok(NoContent)
}

async fn list_received(
    identity: Identity,
    mut tx: ReadTx,
    input: In<Empty, PageQuery, ()>,
) -> Result<Json<Page<ReceivedInvitation>>, Failure> {
    let now = identity.db().ambient().now();
    Ok(Json(invitation_list_received(&mut tx, now, &input.query).await?))
}
