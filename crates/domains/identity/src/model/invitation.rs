//! Invitations: an offer of membership, open until it is accepted, revoked or expired.
//!
//! The token is shown once to whoever invites, who may pass it on; only its hash is kept. The invited address is mailed
//! a link with a proof of its own ([`super::invitation_link`]). Accepting needs a signed-in person with either of them; the
//! e-mail address says whom it was meant for.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Permission, Problem, Role, Secret,
    ids::{InvitationId, OrgId, ProjectId, UserId},
    policy::{PolicyKey as _, Setting, keys},
};
use lifecycle::{Lifecycle as _, Named as _};
use schemars::JsonSchema;
use serde::Serialize;

use super::role::{Authority, MemberRole};

lifecycle::lifecycle! {
    /// `pending` until one of three things happens; nothing leads back.
    InvitationLifecycle = "invitation", initial Pending;
    states InvitationState { Pending = "pending", Accepted = "accepted", Revoked = "revoked", Expired = "expired" }
    events InvitationEvent { Accept = "accept", Revoke = "revoke", Expire = "expire" }
    Pending on Accept => Accepted;
    Pending on Revoke => Revoked;
    Pending on Expire => Expired;
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Invitation {
    pub id: InvitationId,
    pub org_id: OrgId,
    pub email: String,
    pub role: MemberRole,
    /// The project that the invited user also joins. Missing without one, and after it was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// The role in the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_role: Option<MemberRole>,
    pub state: InvitationState,
    pub invited_by: UserId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_by: Option<UserId>,
    /// The invited user, when they declined; the state is then `revoked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declined_by: Option<UserId>,
    pub expires_at: DateTime<Utc>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// An invitation that can be accepted, as its receiver is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenInvitation {
    pub id: InvitationId,
    pub org_id: OrgId,
    pub org_name: String,
    pub email: String,
    pub role: MemberRole,
    pub project: Option<InvitedProject>,
    /// The name of whoever invites.
    pub invited_by: String,
    pub expires_at: DateTime<Utc>,
}

/// The project that an invitation also leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitedProject {
    /// Nothing when the project was deleted since.
    pub name: Option<String>,
    pub role: MemberRole,
}

impl OpenInvitation {
    /// What is offered: `acme as member, and its project training as admin`.
    pub fn offer(&self) -> String {
        let org = format!("{} as {}", self.org_name, self.role.name());
        match &self.project {
            Some(InvitedProject { name: Some(name), role }) => {
                format!("{org}, and its project {name} as {}", role.name())
            }
            _ => org,
        }
    }
}

/// An invitation whatever became of it, for whoever shows its secret.
#[derive(Clone, Debug)]
pub struct SentInvitation {
    pub invitation: OpenInvitation,
    pub state: InvitationState,
    pub accepted_by: Option<UserId>,
    pub is_declined: bool,
    pub token_hash: Vec<u8>,
}

/// What an invitation is worth now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Open,
    Accepted(UserId),
    Declined,
    Revoked,
    Expired,
}

impl SentInvitation {
    pub fn standing(&self, now: DateTime<Utc>) -> Standing {
        match (self.state, self.accepted_by) {
            (InvitationState::Pending, _) if now < self.invitation.expires_at => Standing::Open,
            (InvitationState::Accepted, Some(user)) => Standing::Accepted(user),
            (InvitationState::Revoked, _) if self.is_declined => Standing::Declined,
            (InvitationState::Revoked, _) => Standing::Revoked,
            _ => Standing::Expired,
        }
    }
}

/// An open invitation to the caller's own address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReceivedInvitation {
    pub id: InvitationId,
    pub org_id: OrgId,
    pub org_name: String,
    /// The invited address.
    pub email: String,
    pub role: MemberRole,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// The project that you also join. Missing without one, and after it was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_role: Option<MemberRole>,
    /// The name of whoever invites.
    pub invited_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invited_by_email: Option<String>,
    pub expires_at: DateTime<Utc>,
    pub created_at: DateTime<Utc>,
}

/// What somebody accepts an invitation with.
#[derive(Clone, Copy, Debug)]
pub enum AcceptedWith<'a> {
    /// The token that the inviter was shown, or the proof of the mailed link.
    Secret(&'a Secret),
    /// Being signed in with the invited address, which is proved to be theirs.
    OwnAddress,
}

/// May whoever sent the invitation still give what it offers? `roles` are those that they have now.
pub fn check_inviter(invitation: &Invitation, roles: &[Role]) -> Result<(), Problem> {
    let in_org = Authority::in_org(roles).reaches(invitation.role);
    let in_project = match (invitation.project_id, invitation.project_role) {
        (Some(_), Some(role)) => Authority::in_project(roles).reaches(role),
        _ => Ok(()),
    };
    // Roles that give nobody the right to invite reach viewers too.
    let invites = roles.iter().any(|role| role.permissions().holds(Permission::InvitationManage));
    if invites && in_org.is_ok() && in_project.is_ok() {
        return Ok(());
    }
    Err(Problem::new(Code::InvalidTransition, INVITER_LOST_ROLE)
        .detail("reason", "inviter_lost_role")
        .suggest("Ask an owner or administrator of the organization for a new invitation."))
}

pub const INVITER_LOST_ROLE: &str = "Whoever sent the invitation may not give this role any more.";

/// How far an organization may go with invitations, by its policies.
#[derive(Clone, Copy, Debug)]
pub struct InvitationLimits {
    pub ttl_days: Setting,
    /// Within 24 hours, in all and to one address: each may be a mail to somebody who did not ask for it.
    pub per_day: Setting,
    pub per_address_per_day: Setting,
}

impl Default for InvitationLimits {
    fn default() -> Self {
        Self {
            ttl_days: keys::INVITATION_TTL_DAYS.default_setting(),
            per_day: keys::INVITATIONS_PER_DAY.default_setting(),
            per_address_per_day: keys::INVITATIONS_PER_ADDRESS_PER_DAY.default_setting(),
        }
    }
}

/// The invitations of an organization within the last 24 hours, whatever became of them.
#[derive(Clone, Copy, Debug)]
pub struct RecentInvitations {
    pub all: i64,
    pub to_address: i64,
}

/// Whether there may be one more.
pub fn another_invitation(recent: RecentInvitations, limits: InvitationLimits) -> Result<(), Problem> {
    if recent.to_address >= limits.per_address_per_day.get() {
        let text = format!("This address was invited {} times within 24 hours.", recent.to_address);
        return Err(Problem::new(Code::QuotaExceeded, text)
            .detail("limit", limits.per_address_per_day.get())
            .suggest("Ask the invited user to look for the earlier mail, or invite again tomorrow."));
    }
    if recent.all >= limits.per_day.get() {
        let text = format!("The organization has invited {} people within 24 hours.", recent.all);
        return Err(Problem::new(Code::QuotaExceeded, text).detail("limit", limits.per_day.get()).suggest(
            "Invite the others tomorrow, or ask a platform administrator to raise the policy identity.invitations_per_day.",
        ));
    }
    Ok(())
}

impl Invitation {
    /// Where `event` leads from here.
    pub fn after(&self, event: InvitationEvent) -> Result<InvitationState, Problem> {
        InvitationLifecycle::next(self.state, event).ok_or_else(|| {
            let text = format!("The invitation is {}; only a pending one can be changed.", self.state);
            Problem::new(Code::InvalidTransition, text).detail("state", self.state.name())
        })
    }

    /// Accepting: the right secret first, so that a wrong one learns nothing; then the state; then the time.
    pub fn accept(&self, is_secret_right: bool, now: DateTime<Utc>) -> Result<InvitationState, Problem> {
        if !is_secret_right {
            return Err(Problem::not_found("invitation"));
        }
        let next = self.after(InvitationEvent::Accept)?;
        if now >= self.expires_at {
            return Err(Problem::new(Code::InvalidTransition, "The invitation has expired.")
                .detail("state", InvitationState::Expired.name())
                .suggest("Ask for a new invitation."));
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use lifecycle::Lifecycle as _;
    use uuid::Uuid;

    use super::*;

    fn invitation(state: InvitationState) -> Invitation {
        Invitation {
            id: InvitationId::from(Uuid::from_u128(1)),
            org_id: OrgId::from(Uuid::from_u128(2)),
            email: "a@example.org".to_owned(),
            role: MemberRole::Member,
            project_id: None,
            project_role: None,
            state,
            invited_by: UserId::from(Uuid::from_u128(3)),
            accepted_by: None,
            declined_by: None,
            expires_at: DateTime::UNIX_EPOCH + chrono::TimeDelta::days(7),
            version: 1,
            created_at: DateTime::UNIX_EPOCH,
            updated_at: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn every_pair_of_state_and_event_is_allowed_or_refused_as_the_table_says() {
        for state in InvitationLifecycle::STATES {
            for event in InvitationLifecycle::EVENTS {
                let expected = InvitationLifecycle::next(*state, *event);
                assert_eq!(invitation(*state).after(*event).ok(), expected, "{state:?} on {event:?}");
                assert_eq!(expected.is_some(), *state == InvitationState::Pending);
            }
        }
    }

    #[test]
    fn a_wrong_token_learns_nothing_whatever_the_state() {
        for state in InvitationLifecycle::STATES {
            let refused = invitation(*state).accept(false, DateTime::UNIX_EPOCH).unwrap_err();
            assert_eq!(refused.code, Code::NotFound);
        }
    }

    #[test]
    fn the_last_moment_counts_as_expired() {
        let pending = invitation(InvitationState::Pending);
        let before = pending.expires_at - chrono::TimeDelta::microseconds(1);
        assert_eq!(pending.accept(true, before).ok(), Some(InvitationState::Accepted));
        let refused = pending.accept(true, pending.expires_at).unwrap_err();
        assert_eq!(refused.code, Code::InvalidTransition);
    }

    #[test]
    fn an_inviter_must_still_be_allowed_to_give_what_they_offered() {
        let offered = |role, project_role: Option<MemberRole>| Invitation {
            role,
            project_id: project_role.map(|_| ProjectId::from(Uuid::from_u128(4))),
            project_role,
            ..invitation(InvitationState::Pending)
        };
        use MemberRole::{Admin, Member, Owner, Viewer};
        for (role, project_role, held, allowed) in [
            (Member, None, vec![Role::OrgAdmin], true),
            (Owner, None, vec![Role::OrgAdmin], false),
            (Owner, None, vec![Role::PlatformAdmin], true),
            (Viewer, None, vec![Role::OrgMember], false),
            (Viewer, None, vec![], false),
            (Viewer, Some(Owner), vec![Role::OrgAdmin], true),
            (Viewer, Some(Viewer), vec![Role::ProjectOwner], false),
            (Admin, Some(Admin), vec![Role::OrgViewer, Role::ProjectOwner], false),
        ] {
            let result = check_inviter(&offered(role, project_role), &held);
            assert_eq!(result.is_ok(), allowed, "{role:?} {project_role:?} {held:?}");
        }
    }

    #[test]
    fn an_invitation_says_what_became_of_it() {
        let user = UserId::from(Uuid::from_u128(9));
        let sent = |state, accepted_by, is_declined| SentInvitation {
            invitation: OpenInvitation {
                id: InvitationId::from(Uuid::from_u128(1)),
                org_id: OrgId::from(Uuid::from_u128(2)),
                org_name: "acme".to_owned(),
                email: "a@example.org".to_owned(),
                role: MemberRole::Member,
                project: None,
                invited_by: "Ann".to_owned(),
                expires_at: DateTime::UNIX_EPOCH + chrono::TimeDelta::days(7),
            },
            state,
            accepted_by,
            is_declined,
            token_hash: Vec::new(),
        };
        let (before, after) = (DateTime::UNIX_EPOCH, DateTime::UNIX_EPOCH + chrono::TimeDelta::days(7));
        for (sent, at, standing) in [
            (sent(InvitationState::Pending, None, false), before, Standing::Open),
            (sent(InvitationState::Pending, None, false), after, Standing::Expired),
            (sent(InvitationState::Expired, None, false), before, Standing::Expired),
            (sent(InvitationState::Accepted, Some(user), false), after, Standing::Accepted(user)),
            (sent(InvitationState::Revoked, None, false), before, Standing::Revoked),
            (sent(InvitationState::Revoked, None, true), before, Standing::Declined),
        ] {
            assert_eq!(sent.standing(at), standing);
        }
    }

    #[test]
    fn invitations_are_limited_by_address_and_by_organization() {
        let limits = InvitationLimits {
            ttl_days: keys::INVITATION_TTL_DAYS.default_setting(),
            per_day: keys::INVITATIONS_PER_DAY.read(&serde_json::json!(5)),
            per_address_per_day: keys::INVITATIONS_PER_ADDRESS_PER_DAY.read(&serde_json::json!(2)),
        };
        for (all, to_address, exceeded) in
            [(0, 0, None), (4, 1, None), (4, 2, Some(2)), (5, 1, Some(5)), (9, 9, Some(2))]
        {
            let result = another_invitation(RecentInvitations { all, to_address }, limits);
            let limit = result.err().map(|problem| (problem.code, problem.details["limit"].clone()));
            let expected = exceeded.map(|limit: i64| (Code::QuotaExceeded, limit.into()));
            assert_eq!(limit, expected, "{all} {to_address}");
        }
    }
}
