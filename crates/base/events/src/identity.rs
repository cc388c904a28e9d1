//! What identity tells the rest of the product. Consumers read these from the stream IDENTITY.

use chrono::{DateTime, Utc};
use kernel::{
    Role,
    ids::{
        InvitationId, OrgId, ProjectId, ServiceAccountId, ServiceAccountKeyId, SessionId, SshKeyId, UserId,
    },
};
use serde_json::Value;

lifecycle::named_enum! {
    /// A role in an organization or in a project, from the least to the most.
    MemberRole = "member role" { Viewer = "viewer", Member = "member", Admin = "admin", Owner = "owner" }
}

impl MemberRole {
    pub const fn in_org(self) -> Role {
        match self {
            Self::Viewer => Role::OrgViewer,
            Self::Member => Role::OrgMember,
            Self::Admin => Role::OrgAdmin,
            Self::Owner => Role::OrgOwner,
        }
    }

    pub const fn in_project(self) -> Role {
        match self {
            Self::Viewer => Role::ProjectViewer,
            Self::Member => Role::ProjectMember,
            Self::Admin => Role::ProjectAdmin,
            Self::Owner => Role::ProjectOwner,
        }
    }

    /// The other way round: what a held role is called among members of its place.
    pub const fn from_role(role: Role) -> Option<Self> {
        match role {
            Role::OrgViewer | Role::ProjectViewer => Some(Self::Viewer),
            Role::OrgMember | Role::ProjectMember => Some(Self::Member),
            Role::OrgAdmin | Role::ProjectAdmin => Some(Self::Admin),
            Role::OrgOwner | Role::ProjectOwner => Some(Self::Owner),
            _ => None,
        }
    }
}

lifecycle::named_enum! {
    PlatformRole = "platform role" {
        PlatformAdmin = "platform_admin", PlatformOps = "platform_ops", PlatformAuditor = "platform_auditor",
    }
}

impl PlatformRole {
    pub const fn role(self) -> Role {
        match self {
            Self::PlatformAdmin => Role::PlatformAdmin,
            Self::PlatformOps => Role::PlatformOps,
            Self::PlatformAuditor => Role::PlatformAuditor,
        }
    }

    pub fn from_role(role: Role) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.role() == role)
    }
}

lifecycle::named_enum! {
    ServiceAccountState = "service account state" { Active = "active", Disabled = "disabled" }
}

lifecycle::named_columns! { MemberRole, ServiceAccountState }

crate::declare::events! { Identity;
    UserCreated = "identity.user.created", "A user signed in for the first time; a personal organization was created." { user_id: UserId, org_id: OrgId, project_id: ProjectId, issuer: String }
    OrgCreated = "identity.org.created", "An organization was created." { org_id: OrgId, slug: String, owner_id: UserId }
    OrgSuspended = "identity.org.suspended", "An organization was suspended and is read-only." { org_id: OrgId, reason: String }
    OrgResumed = "identity.org.resumed", "A suspended organization was resumed." { org_id: OrgId }
    ProjectCreated = "identity.project.created", "A project was created." { org_id: OrgId, project_id: ProjectId, slug: String }
    ProjectDeleted = "identity.project.deleted", "A project was deleted." { org_id: OrgId, project_id: ProjectId }
    MemberAdded = "identity.member.added", "A user joined an organization." { org_id: OrgId, user_id: UserId, role: MemberRole }
    MemberRemoved = "identity.member.removed", "A user was removed from an organization and its projects." { org_id: OrgId, user_id: UserId }
    MemberRoleChanged = "identity.member.role_changed", "The role of a user in an organization changed." { org_id: OrgId, user_id: UserId, from: MemberRole, to: MemberRole }
    ProjectMemberSet = "identity.project_member.set", "A user was granted a role in a project." { project_id: ProjectId, user_id: UserId, role: MemberRole }
    ProjectMemberRemoved = "identity.project_member.removed", "The role of a user in a project was revoked." { project_id: ProjectId, user_id: UserId }
    InvitationCreated = "identity.invitation.created", "A user was invited to an organization." { org_id: OrgId, invitation_id: InvitationId, email: String, role: MemberRole, expires_at: DateTime<Utc> }
    InvitationAccepted = "identity.invitation.accepted", "An invitation was accepted." { org_id: OrgId, invitation_id: InvitationId, user_id: UserId }
    InvitationRevoked = "identity.invitation.revoked", "An invitation was revoked." { org_id: OrgId, invitation_id: InvitationId }
    InvitationExpired = "identity.invitation.expired", "An invitation expired." { org_id: OrgId, invitation_id: InvitationId }
    ServiceAccountCreated = "identity.service_account.created", "A service account was created." { project_id: ProjectId, service_account_id: ServiceAccountId }
    ServiceAccountChanged = "identity.service_account.changed", "A service account was renamed, disabled or enabled." { project_id: ProjectId, service_account_id: ServiceAccountId, state: ServiceAccountState }
    ServiceAccountDeleted = "identity.service_account.deleted", "A service account and its keys were deleted." { project_id: ProjectId, service_account_id: ServiceAccountId }
    ServiceAccountKeyCreated = "identity.service_account_key.created", "A key of a service account was created." { service_account_id: ServiceAccountId, key_id: ServiceAccountKeyId }
    ServiceAccountKeyRevoked = "identity.service_account_key.revoked", "A key of a service account was revoked." { service_account_id: ServiceAccountId, key_id: ServiceAccountKeyId }
    AccountDisabled = "identity.account.disabled", "A user's account was disabled: the user cannot sign in, and their SSH keys are removed from all machines." { user_id: UserId }
    SshKeyDeleted = "identity.ssh_key.deleted", "A user deleted an SSH key; it is removed from all machines." { user_id: UserId, ssh_key_id: SshKeyId }
    SessionRevoked = "identity.session.revoked", "A sign-in session was revoked." { user_id: UserId, session_id: SessionId }
    PlatformRolesChanged = "identity.user.platform_roles_changed", "The platform roles of a user changed." { user_id: UserId, roles: Vec<PlatformRole> }
    PolicyChanged = "identity.policy.changed", "A policy value was set, or removed (no value)." { key: String, scope: String, value: Option<Value> }
}
