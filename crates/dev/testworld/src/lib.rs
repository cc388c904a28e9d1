//! People, organizations and projects for tests of domains, made by the services of identity, so that what a test
//! starts from could have come about: with memberships, events and audit rows.
//!
//! A crate of its own beside `testkit`, which knows no domain: tests of the platform need not wait for identity.
//! It panics with a clear message rather than returning errors.
#![allow(clippy::expect_used, clippy::panic, reason = "test support: a failure is a failed test")]

use base64::prelude::{BASE64_STANDARD, Engine as _};
use endpoint::ClientInfo;
use identity::{
    api::{InvitationLinks, MemberRole, PlatformRole},
    authn::{
        model::Identity,
        service::{SeenSession, ensure_user, first_sign_in},
    },
    model::{
        invitation::{AcceptedWith, Invitation, InvitationLimits},
        org::Org,
        person::PlatformUser,
        project::Project,
        service_account::ServiceAccountRole,
    },
    service::{
        invitations::{Invite, invitation_accept, invitation_create, invitation_revoke},
        members::{member_list, member_update},
        orgs::org_create,
        people::{platform_roles_set, platform_user_list},
        project_members::project_member_set,
        projects::{project_create, project_list},
        service_accounts::{NewAccount, service_account_create},
        ssh_keys::ssh_key_create,
    },
};
use kernel::{
    CorrelationId, Failure, PageQuery, Permission, Role, Secret,
    ids::{InvitationId, OrgId, ProjectId, ServiceAccountId, UserId},
    policy::{PolicyKey as _, keys},
    text::{Email, Name, Slug},
};
use pg::{Actor, ActorKind, Db, Origin, Permit, Scope, WriteTx};

/// An organization with its project `default`, and who owns both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub org: OrgId,
    pub project: ProjectId,
    pub owner: UserId,
}

/// Makes tenants and their people.
#[derive(Clone)]
pub struct Tenants {
    db: Db,
}

impl Tenants {
    pub fn new(db: &Db) -> Self {
        Self { db: db.clone() }
    }

    pub fn origin(&self) -> Origin {
        Origin::internal(CorrelationId(self.db.ambient().uuid()))
    }

    /// The right of a user with `role` to act in `scope`.
    pub fn permit(&self, user: UserId, role: Role, scope: Scope, permission: Permission) -> Permit {
        let actor = Actor { kind: ActorKind::User, id: Some(user.uuid()), role: role.name() };
        let granted = role.permissions().authorize(permission).expect("the role holds the permission");
        Permit::granted(actor, scope, self.origin(), granted)
    }

    async fn write(&self, permit: Permit, action: &'static str) -> WriteTx {
        self.db.write(permit, action).await.expect("begin")
    }

    /// As an owner of the organization; which of them does not matter to who is made.
    async fn write_in(&self, org: OrgId, permission: Permission, action: &'static str) -> WriteTx {
        let owner = self.db.ambient().id();
        self.write(self.permit(owner, Role::OrgOwner, Scope::Org(org), permission), action).await
    }

    /// Somebody who signed in once, with the address `name@example.org`.
    pub async fn user(&self, name: &str) -> UserId {
        self.user_with(name, Some(&format!("{name}@example.org"))).await
    }

    pub async fn user_with(&self, name: &str, email: Option<&str>) -> UserId {
        ensure_user(&self.db, &identity_of(name, email), &self.origin()).await.expect("sign in")
    }

    /// An enterprise organization, made by a platform administrator for `owner`; its name is its slug.
    pub async fn org(&self, slug: &str, owner: UserId) -> Org {
        self.org_named(slug, slug, owner).await
    }

    pub async fn org_named(&self, name: &str, slug: &str, owner: UserId) -> Org {
        let admin = self.db.ambient().id();
        let permit = self.permit(admin, Role::PlatformAdmin, Scope::Platform, Permission::PlatformOrgManage);
        let mut tx = self.write(permit, "org.create").await;
        let (name, slug) = (Name::parse(name).expect("a name"), Slug::parse(slug).expect("a slug"));
        let org = org_create(&mut tx, name, slug, owner).await;
        committed(tx, org).await
    }

    pub async fn project(&self, org: OrgId, slug: &str) -> Project {
        let mut tx = self.write_in(org, Permission::ProjectCreate, "project.create").await;
        let (name, slug) = (Name::parse(slug).expect("a name"), Slug::parse(slug).expect("a slug"));
        let project = project_create(&mut tx, org, name, slug).await;
        committed(tx, project).await
    }

    /// An organization with an owner of its own and the project `default`.
    pub async fn tenant(&self, slug: &str) -> Tenant {
        let owner = self.user(&format!("owner-of-{slug}")).await;
        let org = self.org(slug, owner).await.id;
        let permit = self.permit(owner, Role::OrgOwner, Scope::Org(org), Permission::ProjectRead);
        let mut tx = self.db.read(&permit).await.expect("read");
        let projects = project_list(&mut tx, org, None, &PageQuery::default()).await.expect("the project");
        Tenant { org, project: projects.items[0].id, owner }
    }

    /// A service account that launches, with an SSH key.
    pub async fn launcher(&self, tenant: Tenant, name: &str) -> ServiceAccountId {
        let mut tx =
            self.write_in(tenant.org, Permission::ServiceAccountManage, "service_account.create").await;
        let new = NewAccount {
            name: Name::parse(name).expect("a name"),
            role: ServiceAccountRole::Launcher,
            ssh_public_keys: vec![ssh_key_named(name)],
        };
        let account = service_account_create(&mut tx, tenant.org, tenant.project, new).await;
        committed(tx, account).await.id
    }

    async fn owner_of(&self, org: OrgId) -> UserId {
        let permit =
            self.permit(self.db.ambient().id(), Role::OrgOwner, Scope::Org(org), Permission::MemberRead);
        let mut tx = self.db.read(&permit).await.expect("read");
        let members = member_list(&mut tx, org, &PageQuery::default()).await.expect("members");
        let owner = members.items.into_iter().find(|member| member.role == MemberRole::Owner);
        owner.expect("an organization has an owner").id
    }

    pub async fn invite(&self, org: OrgId, email: &str, role: MemberRole) -> (Invitation, Secret) {
        let mut tx = self.write_in(org, Permission::InvitationManage, "invitation.create").await;
        let invite = Invite {
            email: Email::parse(email).expect("an address"),
            role,
            project: None,
            invited_by: self.owner_of(org).await,
        };
        let limits = InvitationLimits::default();
        let made = invitation_create(&mut tx, org, invite, limits, &[Role::OrgOwner]).await;
        committed(tx, made).await
    }

    pub async fn invitation_revoke(&self, org: OrgId, id: InvitationId) {
        let mut tx = self.write_in(org, Permission::InvitationManage, "invitation.revoke").await;
        let revoked = invitation_revoke(&mut tx, org, id, None).await;
        committed(tx, revoked).await;
    }

    /// Invites the user, who accepts.
    pub async fn member(&self, org: OrgId, user: UserId, role: MemberRole) {
        let (invitation, token) = self.invite(org, &format!("{user}@example.org"), role).await;
        let permit = self.permit(user, Role::Person, Scope::Org(org), Permission::InvitationAccept);
        let mut tx = self.write(permit, "invitation.accept").await;
        let links = InvitationLinks::new(&Secret::new([7; 32]), "https://gpuaas.test", false);
        let with = AcceptedWith::Secret(&token);
        let member = invitation_accept(&mut tx, &links, (org, invitation.id), with, user).await;
        committed(tx, member).await;
    }

    /// Gives a member another role.
    pub async fn member_update(&self, org: OrgId, user: UserId, role: MemberRole) {
        let mut tx = self.write_in(org, Permission::MemberManage, "member.update").await;
        let member = member_update(&mut tx, org, user, Some(role), None, &[Role::OrgOwner]).await;
        committed(tx, member).await;
    }

    pub async fn project_member(&self, org: OrgId, project: ProjectId, user: UserId, role: MemberRole) {
        let owner = self.db.ambient().id();
        let scope = Scope::Project(org, project);
        let permit = self.permit(owner, Role::ProjectOwner, scope, Permission::ProjectMemberManage);
        let mut tx = self.write(permit, "project_member.set").await;
        let owners = &[Role::ProjectOwner];
        let member = project_member_set(&mut tx, (org, project), user, role, None, owners).await;
        committed(tx, member).await;
    }

    /// A new user who is a member of the organization and of the project.
    pub async fn member_of(&self, tenant: Tenant, name: &str) -> UserId {
        let user = self.user(name).await;
        self.member(tenant.org, user, MemberRole::Member).await;
        self.project_member(tenant.org, tenant.project, user, MemberRole::Member).await;
        user
    }

    /// Stores the made-up public key of that name and gives it.
    pub async fn ssh_key(&self, user: UserId, name: &str) -> String {
        let permit = self.permit(user, Role::Person, Scope::Person, Permission::SshKeyManage);
        let mut tx = self.write(permit, "ssh_key.create").await;
        let limit = keys::SSH_KEYS_PER_USER.default_setting();
        let label = Name::parse(name).expect("a name");
        let stored = ssh_key_create(&mut tx, user, label, &ssh_key_named(name), limit).await;
        committed(tx, stored).await.public_key
    }

    /// Somebody with a role on the platform. The first administrator is whom the operator chose, who appoints the second
    /// alone; further ones take two people.
    pub async fn platform_user(&self, name: &str, email: &str, role: PlatformRole) -> UserId {
        if role == PlatformRole::PlatformAdmin {
            self.first_admin(name, email).await;
        }
        let user = self.user_with(name, Some(email)).await;
        let by = self.platform_admin().await.unwrap_or_else(|| self.db.ambient().id());
        let permit = self.permit(by, Role::PlatformAdmin, Scope::Platform, Permission::PlatformUserManage);
        let mut tx = self.write(permit, "platform_user.roles_set").await;
        let set = platform_roles_set(&mut tx, user, vec![role]).await;
        committed(tx, set).await;
        user
    }

    /// An ordinary sign-in when the platform has an administrator.
    async fn first_admin(&self, name: &str, email: &str) {
        let session = SeenSession {
            issuer_sid: name.to_owned(),
            client_id: None,
            expires_at: self.db.ambient().now() + chrono::TimeDelta::hours(1),
        };
        let who = identity_of(name, Some(email));
        first_sign_in(&self.db, &who, &session, &ClientInfo::default(), true).await.expect("sign in");
    }

    async fn platform_admin(&self) -> Option<UserId> {
        let permit = Permit::system("a test looks for an administrator", self.origin());
        let mut tx = self.db.read(&permit).await.expect("read");
        let users = platform_user_list(&mut tx, None, &PageQuery::default()).await.expect("users");
        let is_admin = |user: &PlatformUser| user.platform_roles.contains(&PlatformRole::PlatformAdmin);
        users.items.into_iter().find(is_admin).map(|user| user.id)
    }
}

/// What an external issuer says of somebody: the subject is the address, or else the name.
fn identity_of(name: &str, email: Option<&str>) -> Identity {
    let address = email.map(|email| Email::parse(email).expect("an address"));
    Identity::new("https://idp.test", email.unwrap_or(name), address, [name.to_owned()].into_iter())
}

/// A well-formed public key that nobody has the other half of, the same for the same name.
pub fn ssh_key_named(name: &str) -> String {
    let mut point = [0; 32];
    for (byte, letter) in point.iter_mut().zip(name.bytes()) {
        *byte = letter;
    }
    let blob = [&b"\0\0\0\x0bssh-ed25519\0\0\0\x20"[..], &point].concat();
    format!("ssh-ed25519 {}", BASE64_STANDARD.encode(blob))
}

/// What the service made, once it is committed.
async fn committed<T>(tx: WriteTx, made: Result<T, Failure>) -> T {
    let made = made.unwrap_or_else(|failure| panic!("the service refused: {failure:?}"));
    tx.commit(None).await.expect("commit");
    made
}
