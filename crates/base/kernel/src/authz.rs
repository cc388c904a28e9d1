//! Who may do what: roles × permissions, decided once, as data.
//!
//! A permission is one bit; a role is a constant set of them. The pipeline asks one question, "does the
//! union of the caller's roles in this scope hold this permission", and nothing else decides. The whole
//! table is a golden file in the docs, so that a change of authority is seen in review.

use std::fmt;

macro_rules! permissions {
    ($($variant:ident = $name:literal, $reads:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Permission { $($variant),* }

        impl Permission {
            pub const ALL: &'static [Permission] = &[$(Permission::$variant),*];
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $name),* } }
            /// True when holding it changes nothing: what is left to a suspended organization.
            pub const fn is_read(self) -> bool { match self { $(Self::$variant => $reads),* } }
        }
    };
}

permissions! {
    // oneself
    SelfRead = "self.read", true;
    // who one is signed in as, also as a machine
    SelfIdentify = "self.identify", true;
    SelfUpdate = "self.update", false;
    SessionRevoke = "session.revoke", false;
    SshKeyManage = "ssh_key.manage", false;
    InvitationAccept = "invitation.accept", false;
    // an organization
    OrgRead = "org.read", true;
    OrgUpdate = "org.update", false;
    MemberRead = "member.read", true;
    MemberManage = "member.manage", false;
    InvitationRead = "invitation.read", true;
    InvitationManage = "invitation.manage", false;
    PolicyRead = "policy.read", true;
    PolicyManage = "policy.manage", false;
    AuditRead = "audit.read", true;
    ProjectList = "project.list", true;
    ProjectCreate = "project.create", false;
    // a project
    ProjectRead = "project.read", true;
    ProjectUpdate = "project.update", false;
    ProjectDelete = "project.delete", false;
    ProjectMemberRead = "project_member.read", true;
    ProjectMemberManage = "project_member.manage", false;
    ServiceAccountRead = "service_account.read", true;
    ServiceAccountManage = "service_account.manage", false;
    CatalogRead = "catalog.read", true;
    AllocationRead = "allocation.read", true;
    AllocationCreate = "allocation.create", false;
    // one.s own: release, restart, retry, grant.
    AllocationOperate = "allocation.operate", false;
    // anybody.s in the project
    AllocationOperateAny = "allocation.operate_any", false;
    // what a project used and what that cost
    UsageRead = "usage.read", true;
    // the money of an organization
    BillingRead = "billing.read", true;
    BillingManage = "billing.manage", false;
    BudgetManage = "budget.manage", false;
    WebhookRead = "webhook.read", true;
    WebhookManage = "webhook.manage", false;
    // the platform
    PlatformRead = "platform.read", true;
    PlatformOrgManage = "platform.org.manage", false;
    PlatformUserManage = "platform.user.manage", false;
    PlatformPolicyManage = "platform.policy.manage", false;
    PlatformAuditRead = "platform.audit.read", true;
    PlatformOpsRead = "platform.ops.read", true;
    PlatformOpsManage = "platform.ops.manage", false;
    FleetRead = "fleet.read", true;
    FleetManage = "fleet.manage", false;
    TrustManage = "trust.manage", false;
    CapacityRead = "capacity.read", true;
    CapacityManage = "capacity.manage", false;
    // the money of everybody: adjustments, refunds, disputes, findings
    MoneyRead = "money.read", true;
    MoneyManage = "money.manage", false;
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct PermissionSet(u128);

impl PermissionSet {
    pub const EMPTY: Self = Self(0);

    pub const fn from_list(list: &[Permission]) -> Self {
        let (mut bits, mut i) = (0u128, 0);
        while i < list.len() {
            bits |= 1 << list[i] as u8;
            i += 1;
        }
        Self(bits)
    }

    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn holds(self, permission: Permission) -> bool {
        self.0 & (1 << permission as u8) != 0
    }

    /// The only way to a [`Granted`], and so to a write transaction on behalf of a caller.
    pub fn authorize(self, permission: Permission) -> Option<Granted> {
        self.holds(permission).then_some(Granted(permission))
    }

    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.iter().copied().filter(move |p| self.holds(*p))
    }

    /// What a suspended organization keeps.
    pub fn reads_only(self) -> Self {
        self.iter().filter(|p| p.is_read()).fold(Self::EMPTY, |set, p| set.union(Self::from_list(&[p])))
    }
}

/// Proof that a permission was checked and held. It cannot be made any other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted(Permission);

impl Granted {
    pub const fn permission(self) -> Permission {
        self.0
    }
}

impl fmt::Debug for PermissionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Permission::name)).finish()
    }
}

/// The built-in roles. They are immutable; a principal holds them by membership or binding only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Any signed-in person, towards themselves.
    Person,
    OrgOwner,
    OrgAdmin,
    OrgMember,
    OrgViewer,
    ProjectOwner,
    ProjectAdmin,
    ProjectMember,
    ProjectViewer,
    /// A machine, inside its own project, that nobody gave a role.
    ServiceAccount,
    /// A machine that reads what a viewer of its project reads.
    ServiceAccountReader,
    /// A machine that also launches, and operates what it launched.
    ServiceAccountLauncher,
    PlatformAdmin,
    PlatformOps,
    PlatformAuditor,
}

use Permission as P;

const PERSON: PermissionSet = PermissionSet::from_list(&[
    P::SelfRead,
    P::SelfIdentify,
    P::SelfUpdate,
    P::SessionRevoke,
    P::SshKeyManage,
    P::InvitationAccept,
    P::CatalogRead,
]);
const PROJECT_VIEWER: PermissionSet = PermissionSet::from_list(&[
    P::ProjectRead,
    P::ProjectMemberRead,
    P::ServiceAccountRead,
    P::PolicyRead,
    P::AllocationRead,
    P::UsageRead,
]);
const PROJECT_MEMBER: PermissionSet =
    PROJECT_VIEWER.union(PermissionSet::from_list(&[P::AllocationCreate, P::AllocationOperate]));
const PROJECT_ADMIN: PermissionSet = PROJECT_MEMBER.union(PermissionSet::from_list(&[
    P::AllocationOperateAny,
    P::ProjectUpdate,
    P::ProjectMemberManage,
    P::ServiceAccountManage,
    P::PolicyManage,
]));
const PROJECT_OWNER: PermissionSet = PROJECT_ADMIN.union(PermissionSet::from_list(&[P::ProjectDelete]));
// Never entitlements, memberships or money: only what its project shows.
const SERVICE_ACCOUNT: PermissionSet = PermissionSet::from_list(&[
    P::SelfIdentify,
    P::ProjectRead,
    P::PolicyRead,
    P::CatalogRead,
    P::AllocationRead,
]);
const SERVICE_ACCOUNT_READER: PermissionSet = SERVICE_ACCOUNT.union(PROJECT_VIEWER);
const SERVICE_ACCOUNT_LAUNCHER: PermissionSet =
    SERVICE_ACCOUNT_READER.union(PermissionSet::from_list(&[P::AllocationCreate, P::AllocationOperate]));
const ORG_MEMBER: PermissionSet =
    PermissionSet::from_list(&[P::OrgRead, P::MemberRead, P::ProjectList, P::PolicyRead]);
const ORG_VIEWER: PermissionSet =
    ORG_MEMBER.union(PROJECT_VIEWER).union(PermissionSet::from_list(&[P::BillingRead, P::WebhookRead]));
const ORG_ADMIN: PermissionSet = ORG_VIEWER.union(PROJECT_OWNER).union(PermissionSet::from_list(&[
    P::OrgUpdate,
    P::MemberManage,
    P::InvitationRead,
    P::InvitationManage,
    P::AuditRead,
    P::ProjectCreate,
    P::BillingManage,
    P::BudgetManage,
    P::WebhookManage,
]));
const PLATFORM_AUDITOR: PermissionSet = PermissionSet::from_list(&[
    P::PlatformRead,
    P::PlatformAuditRead,
    P::PlatformOpsRead,
    P::FleetRead,
    P::OrgRead,
    P::MemberRead,
    P::InvitationRead,
    P::PolicyRead,
    P::AuditRead,
    P::ProjectList,
    P::ProjectRead,
    P::ProjectMemberRead,
    P::ServiceAccountRead,
    P::CatalogRead,
    P::AllocationRead,
    P::CapacityRead,
    P::UsageRead,
    P::BillingRead,
    P::WebhookRead,
    P::MoneyRead,
]);
const PLATFORM_OPS: PermissionSet = PLATFORM_AUDITOR.union(PermissionSet::from_list(&[
    P::PlatformOpsManage,
    P::FleetManage,
    P::CapacityManage,
]));
const PLATFORM_ADMIN: PermissionSet = PLATFORM_OPS.union(ORG_ADMIN).union(PermissionSet::from_list(&[
    P::PlatformOrgManage,
    P::PlatformUserManage,
    P::PlatformPolicyManage,
    P::TrustManage,
    P::MoneyManage,
]));

impl Role {
    pub const ALL: &'static [Role] = &[
        Role::Person,
        Role::OrgOwner,
        Role::OrgAdmin,
        Role::OrgMember,
        Role::OrgViewer,
        Role::ProjectOwner,
        Role::ProjectAdmin,
        Role::ProjectMember,
        Role::ProjectViewer,
        Role::ServiceAccount,
        Role::ServiceAccountReader,
        Role::ServiceAccountLauncher,
        Role::PlatformAdmin,
        Role::PlatformOps,
        Role::PlatformAuditor,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Role::Person => "person",
            Role::OrgOwner => "org_owner",
            Role::OrgAdmin => "org_admin",
            Role::OrgMember => "org_member",
            Role::OrgViewer => "org_viewer",
            Role::ProjectOwner => "project_owner",
            Role::ProjectAdmin => "project_admin",
            Role::ProjectMember => "project_member",
            Role::ProjectViewer => "project_viewer",
            Role::ServiceAccount => "service_account",
            Role::ServiceAccountReader => "service_account_reader",
            Role::ServiceAccountLauncher => "service_account_launcher",
            Role::PlatformAdmin => "platform_admin",
            Role::PlatformOps => "platform_ops",
            Role::PlatformAuditor => "platform_auditor",
        }
    }

    pub const fn permissions(self) -> PermissionSet {
        match self {
            Role::Person => PERSON,
            // An owner differs from an admin in what nobody else may take away (see identity::model).
            Role::OrgOwner | Role::OrgAdmin => ORG_ADMIN,
            Role::OrgMember => ORG_MEMBER,
            Role::OrgViewer => ORG_VIEWER,
            Role::ProjectOwner => PROJECT_OWNER,
            Role::ProjectAdmin => PROJECT_ADMIN,
            Role::ProjectMember => PROJECT_MEMBER,
            Role::ProjectViewer => PROJECT_VIEWER,
            Role::ServiceAccount => SERVICE_ACCOUNT,
            Role::ServiceAccountReader => SERVICE_ACCOUNT_READER,
            Role::ServiceAccountLauncher => SERVICE_ACCOUNT_LAUNCHER,
            Role::PlatformAdmin => PLATFORM_ADMIN,
            Role::PlatformOps => PLATFORM_OPS,
            Role::PlatformAuditor => PLATFORM_AUDITOR,
        }
    }
}

/// The whole table as the page in the docs.
pub fn matrix_markdown() -> String {
    let mut out = String::from(
        "# Roles and permissions\n\nGenerated from `kernel::authz`; do not edit. Roles are immutable.\n\n| permission |",
    );
    let roles = Role::ALL;
    out += &roles.iter().map(|r| format!(" {} |", r.name())).collect::<String>();
    out += &format!("\n| --- |{}\n", " --- |".repeat(roles.len()));
    for permission in Permission::ALL {
        let cells: String =
            roles.iter().map(|r| if r.permissions().holds(*permission) { " yes |" } else { " |" }).collect();
        out += &format!("| `{}` |{cells}\n", permission.name());
    }
    out
}

#[cfg(test)]
#[path = "authz_tests.rs"]
mod tests;
