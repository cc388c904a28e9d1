//! Members of organizations and projects, and the rules by which roles change hands.

use chrono::{DateTime, Utc};
use kernel::{Code, Problem, ids::UserId};
use schemars::JsonSchema;
use serde::Serialize;

use super::role::{Authority, MemberRole};

/// Somebody's place in an organization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Member {
    /// The person.
    pub id: UserId,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    pub role: MemberRole,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Somebody's place in a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProjectMember {
    /// The person.
    pub id: UserId,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    pub role: MemberRole,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

fn keeps_an_owner(current: MemberRole, owners: i64) -> Result<(), Problem> {
    if current == MemberRole::Owner && owners <= 1 {
        return Err(Problem::new(Code::InvalidTransition, "An organization must have at least one owner.")
            .suggest("Grant another member the role owner first."));
    }
    Ok(())
}

/// May `authority` move a member from `current` to `wanted`? `owners` counts all owners of the organization.
pub fn role_change(
    authority: Authority,
    current: MemberRole,
    wanted: MemberRole,
    owners: i64,
) -> Result<(), Problem> {
    authority.reaches(current)?;
    authority.reaches(wanted)?;
    if wanted == MemberRole::Owner { Ok(()) } else { keeps_an_owner(current, owners) }
}

/// May `authority` remove a member whose role is `current`?
pub fn removal(authority: Authority, current: MemberRole, owners: i64) -> Result<(), Problem> {
    authority.reaches(current)?;
    keeps_an_owner(current, owners)
}

#[cfg(test)]
mod tests {
    use kernel::Role;
    use proptest::prelude::*;

    use super::*;

    fn any_role() -> impl Strategy<Value = MemberRole> {
        proptest::sample::select(&MemberRole::ALL[..])
    }

    proptest! {
        #[test]
        fn an_organization_never_loses_its_last_owner(
            holder in proptest::sample::select(Role::ALL), wanted in any_role(),
        ) {
            let authority = Authority::in_org(&[holder]);
            prop_assert!(removal(authority, MemberRole::Owner, 1).is_err());
            if wanted != MemberRole::Owner {
                prop_assert!(role_change(authority, MemberRole::Owner, wanted, 1).is_err());
            }
        }

        #[test]
        fn nobody_raises_anybody_above_their_own_role(
            own in any_role(), current in any_role(), wanted in any_role(), owners in 1i64..5,
        ) {
            let authority = Authority::in_org(&[own.in_org()]);
            if role_change(authority, current, wanted, owners).is_ok() {
                prop_assert!(wanted <= own && current <= own);
            }
        }

        #[test]
        fn owners_and_platform_admins_may_do_whatever_leaves_an_owner(
            current in any_role(), wanted in any_role(),
        ) {
            for role in [Role::OrgOwner, Role::PlatformAdmin] {
                prop_assert!(role_change(Authority::in_org(&[role]), current, wanted, 2).is_ok());
                prop_assert!(removal(Authority::in_org(&[role]), current, 2).is_ok());
            }
        }
    }

    #[test]
    fn an_admin_cannot_touch_an_owner_and_is_told_who_can() {
        let admin = Authority::in_org(&[Role::OrgAdmin]);
        for refused in [
            role_change(admin, MemberRole::Owner, MemberRole::Viewer, 3),
            role_change(admin, MemberRole::Viewer, MemberRole::Owner, 3),
            removal(admin, MemberRole::Owner, 3),
        ] {
            assert_eq!(refused.unwrap_err().code, Code::OwnershipRequired);
        }
        assert!(removal(admin, MemberRole::Admin, 1).is_ok());
    }

    #[test]
    fn in_a_project_the_admins_of_the_organization_stand_above_all() {
        assert!(Authority::in_project(&[Role::OrgAdmin]).reaches(MemberRole::Owner).is_ok());
        let admin = Authority::in_project(&[Role::ProjectAdmin]);
        assert!(admin.reaches(MemberRole::Admin).is_ok());
        assert_eq!(admin.reaches(MemberRole::Owner).unwrap_err().code, Code::OwnershipRequired);
        let member = Authority::in_project(&[Role::OrgMember]);
        assert_eq!(member.reaches(MemberRole::Member).unwrap_err().code, Code::InsufficientPermissions);
    }
}
