//! Invitations: made with a token that is shown once and a link that is mailed, accepted by whoever signs in with either.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Code, Failure, Page, PageQuery, Problem, Role, Secret,
    digest::sha256,
    ids::{InvitationId, OrgId, ProjectId, UserId},
    text::Email,
};
use pg::{Connection, Db, ReadTx, WriteTx};
use subtle::ConstantTimeEq as _;

use super::{changed, created, found, orgs::check_takes_members};
use crate::{
    model::{
        events::{
            InvitationAccepted, InvitationCreated, InvitationExpired, InvitationRevoked, MemberAdded,
            ProjectMemberSet,
        },
        invitation::{
            AcceptedWith, Invitation, InvitationEvent, InvitationLimits, InvitationState, OpenInvitation,
            ReceivedInvitation, SentInvitation, another_invitation, check_inviter,
        },
        invitation_link::InvitationLinks,
        membership::Member,
        role::{Authority, MemberRole},
    },
    store::{
        self,
        invitations::{AnsweredBy, NewInvitation},
    },
};

/// The time that limits count over.
const WITHIN: TimeDelta = TimeDelta::hours(24);

pub struct Invite {
    pub email: Email,
    pub role: MemberRole,
    /// The project that they also join, and their role there.
    pub project: Option<(ProjectId, MemberRole)>,
    pub invited_by: UserId,
}

/// Returns the invitation and the token, which nobody can read again.
pub async fn invitation_create(
    tx: &mut WriteTx,
    org: OrgId,
    invite: Invite,
    limits: InvitationLimits,
    actor: &[Role],
) -> Result<(Invitation, Secret), Failure> {
    let ambient = tx.db().ambient().clone();
    let (now, email) = (ambient.now(), invite.email.as_str());
    check_takes_members(tx, org).await?;
    Authority::in_org(actor).reaches(invite.role)?;
    if let Some((_, role)) = invite.project {
        Authority::in_project(actor).reaches(role)?;
    }
    if store::members::has_member_with_email(tx.conn(), org, email).await? {
        return Err(
            Problem::new(Code::AlreadyExists, "Somebody with this address is a member already.").into()
        );
    }
    let recent = store::invitations::recent_lock_count(tx.conn(), org, email, now - WITHIN).await?;
    another_invitation(recent, limits)?;
    if let Some(overdue) = store::invitations::overdue_of_email(tx.conn(), org, email, now).await? {
        // The trail says what was asked for, the invitation that is made; the event tells of this one.
        expire(tx, &overdue).await?;
    }
    let token = Secret::new(BASE64_URL_SAFE_NO_PAD.encode(ambient.bytes::<32>()));
    let new = NewInvitation {
        id: ambient.id(),
        org,
        email,
        role: invite.role,
        project: invite.project,
        token_hash: sha256(token.expose()),
        invited_by: invite.invited_by,
        expires_at: now + TimeDelta::days(limits.ttl_days.get()),
        now,
    };
    let invitation = store::invitations::insert(tx.conn(), &new).await?;
    created(tx, "invitation", invitation.id, &invitation)?;
    tx.emit(&InvitationCreated {
        org_id: org,
        invitation_id: invitation.id,
        email: invitation.email.clone(),
        role: invitation.role,
        expires_at: invitation.expires_at,
    })?;
    // Somebody may have asked for it before it was there.
    tx.invalidate(format!("invitation:{}", invitation.id.uuid()));
    Ok((invitation, token))
}

pub async fn invitation_get(tx: &mut ReadTx, org: OrgId, id: InvitationId) -> Result<Invitation, Failure> {
    Ok(found(store::invitations::get(tx.conn(), org, id).await?, "invitation")?)
}

/// The invitation whatever became of it: for whoever shows its secret.
pub async fn invitation_find_sent(
    conn: &mut Connection,
    id: InvitationId,
) -> Result<Option<SentInvitation>, Failure> {
    Ok(store::invitations::get_sent(conn, id).await?)
}

/// The open invitations of the caller's own address.
pub async fn invitation_list_received(
    tx: &mut ReadTx,
    now: DateTime<Utc>,
    page: &PageQuery,
) -> Result<Page<ReceivedInvitation>, Failure> {
    let received = store::invitations::received(tx.conn(), None, page, now).await?;
    Ok(page.page(received, |invitation| invitation.id.uuid()))
}

async fn is_for_own_address(tx: &mut WriteTx, id: InvitationId) -> Result<bool, Failure> {
    let now = tx.db().ambient().now();
    let received = store::invitations::received(tx.conn(), Some(id), &PageQuery::default(), now).await?;
    Ok(!received.is_empty())
}

/// The invited user does not want to join.
pub async fn invitation_decline(
    tx: &mut WriteTx,
    org: OrgId,
    id: InvitationId,
    user: UserId,
) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    let is_own = is_for_own_address(tx, id).await?;
    let (before, _) = found(store::invitations::lock(tx.conn(), org, id).await?, "invitation")?;
    if !is_own {
        return Err(Problem::not_found("invitation").into());
    }
    let to = before.after(InvitationEvent::Revoke)?;
    let swap =
        store::invitations::transition(tx.conn(), &before, to, AnsweredBy::Declined(user), now).await?;
    let after = swap.or_problem("invitation")?;
    changed(tx, "invitation", id, &before, &after)?;
    tx.emit(&InvitationRevoked { org_id: org, invitation_id: id })?;
    tx.invalidate(format!("invitation:{}", id.uuid()));
    Ok(())
}

/// The invitation when it is pending and its time is not over.
pub async fn invitation_find_open(
    conn: &mut Connection,
    id: InvitationId,
    now: DateTime<Utc>,
) -> Result<Option<OpenInvitation>, Failure> {
    Ok(store::invitations::get_open(conn, id, now).await?)
}

pub async fn invitation_list(
    tx: &mut ReadTx,
    org: OrgId,
    state: Option<InvitationState>,
    page: &PageQuery,
) -> Result<Page<Invitation>, Failure> {
    let invitations = store::invitations::list(tx.conn(), org, state, page).await?;
    Ok(page.page(invitations, |invitation| invitation.id.uuid()))
}

pub async fn invitation_revoke(
    tx: &mut WriteTx,
    org: OrgId,
    id: InvitationId,
    if_match: Option<i64>,
) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    let (before, _) = found(store::invitations::lock(tx.conn(), org, id).await?, "invitation")?;
    if if_match.is_some_and(|version| version != before.version) {
        return Err(Problem::version_conflict(before.version).into());
    }
    let to = before.after(InvitationEvent::Revoke)?;
    let swap = store::invitations::transition(tx.conn(), &before, to, AnsweredBy::Nobody, now).await?;
    let after = swap.or_problem("invitation")?;
    changed(tx, "invitation", id, &before, &after)?;
    tx.emit(&InvitationRevoked { org_id: org, invitation_id: id })?;
    tx.invalidate(format!("invitation:{}", id.uuid()));
    Ok(())
}

/// Joins the organization, and the project of the invitation if it is still there, with the roles that the inviter chose and
/// may still give.
pub async fn invitation_accept(
    tx: &mut WriteTx,
    links: &InvitationLinks,
    (org, id): (OrgId, InvitationId),
    with: AcceptedWith<'_>,
    user: UserId,
) -> Result<Member, Failure> {
    let now = tx.db().ambient().now();
    let is_own = match with {
        AcceptedWith::OwnAddress => is_for_own_address(tx, id).await?,
        AcceptedWith::Secret(_) => false,
    };
    // The lock makes concurrent acceptances take turns; the second finds the state changed.
    let (before, hash) = found(store::invitations::lock(tx.conn(), org, id).await?, "invitation")?;
    let is_right = match with {
        AcceptedWith::Secret(secret) => {
            let is_token = bool::from(hash[..].ct_eq(&sha256(secret.expose())[..]));
            is_token | links.proves(id, &before.email, secret.expose())
        }
        AcceptedWith::OwnAddress => is_own,
    };
    let to = before.accept(is_right, now)?;
    if store::orgs::get(tx.conn(), org).await?.is_some_and(|org| org.suspended_at.is_some()) {
        return Err(Problem::from_code(Code::TenantSuspended).into());
    }
    check_inviter(&before, &store::invitations::inviter_roles(tx.conn(), id).await?)?;
    if !store::members::insert(tx.conn(), org, user, before.role, now).await? {
        return Err(Problem::new(Code::AlreadyExists, "You are a member of the organization already.").into());
    }
    let by = AnsweredBy::Accepted(user);
    let after =
        store::invitations::transition(tx.conn(), &before, to, by, now).await?.or_problem("invitation")?;
    let member = found(store::members::get(tx.conn(), org, user).await?, "member")?;
    changed(tx, "invitation", id, &before, &after)?;
    tx.emit(&InvitationAccepted { org_id: org, invitation_id: id, user_id: user })?;
    tx.emit(&MemberAdded { org_id: org, user_id: user, role: member.role })?;
    if let (Some(project), Some(role)) = (before.project_id, before.project_role) {
        store::project_members::insert(tx.conn(), org, project, user, role, now).await?;
        tx.emit(&ProjectMemberSet { project_id: project, user_id: user, role })?;
    }
    tx.invalidate(format!("user:{}", user.uuid()));
    tx.invalidate(format!("invitation:{}", id.uuid()));
    Ok(member)
}

/// Leaves the audit target alone: it is the caller's.
async fn expire(tx: &mut WriteTx, overdue: &Invitation) -> Result<Invitation, Failure> {
    let now = tx.db().ambient().now();
    let to = overdue.after(InvitationEvent::Expire)?;
    let swap = store::invitations::transition(tx.conn(), overdue, to, AnsweredBy::Nobody, now).await?;
    let after = swap.or_problem("invitation")?;
    tx.emit(&InvitationExpired { org_id: after.org_id, invitation_id: after.id })?;
    tx.invalidate(format!("invitation:{}", after.id.uuid()));
    Ok(after)
}

/// Expires up to `limit` invitations whose time is over, each in its own transaction and its own
/// organization's audit chain. Returns how many there were.
pub async fn invitations_expire(db: &Db, limit: i64) -> Result<usize, Failure> {
    let permit = || {
        let correlation = kernel::CorrelationId(db.ambient().uuid());
        pg::Permit::system("expire invitations whose time is over", pg::Origin::internal(correlation))
    };
    let now = db.ambient().now();
    let overdue = {
        let mut read = db.read(&permit()).await?;
        store::invitations::overdue(read.conn(), now, limit).await?
    };
    let mut expired = 0;
    for (org, id) in overdue {
        let mut tx = db.write(permit(), "invitation.expire").await?;
        let Some((invitation, _)) = store::invitations::lock(tx.conn(), org, id).await? else { continue };
        // Somebody was faster: revoked, accepted, or another replica's turn.
        if invitation.after(InvitationEvent::Expire).is_err() {
            tx.roll_back().await;
            continue;
        }
        tx.audit_in_org(org);
        let after = expire(&mut tx, &invitation).await?;
        changed(&mut tx, "invitation", after.id, &invitation, &after)?;
        tx.commit(None).await?;
        expired += 1;
    }
    Ok(expired)
}

/// Somebody joined: an invitation of their address that is still open has lost its purpose and is withdrawn.
pub async fn invitation_close_for_member(tx: &mut WriteTx, org: OrgId, user: UserId) -> Result<(), Failure> {
    let email = found(store::people::email(tx.conn(), user).await?, "user")?;
    let Some(email) = email else { return Ok(()) };
    let Some(before) = store::invitations::pending_of_email(tx.conn(), org, &email).await? else {
        return Ok(());
    };
    let now = tx.db().ambient().now();
    let to = before.after(InvitationEvent::Revoke)?;
    let after = store::invitations::transition(tx.conn(), &before, to, AnsweredBy::Nobody, now)
        .await?
        .or_problem("invitation")?;
    changed(tx, "invitation", after.id, &before, &after)?;
    tx.emit(&InvitationRevoked { org_id: org, invitation_id: after.id })?;
    tx.invalidate(format!("invitation:{}", after.id.uuid()));
    Ok(())
}
