//! Changes that need a second person: what decides when one is needed, and who that can be.
//!
//! Money above a policy's amount is moved by two people. Whoever could raise the amount alone, or appoint somebody to
//! approve, would be both of them. So one administrator proposes such a change and another applies it. Two things are done by
//! one person: taking the right to approve away, and appointing the second administrator of an installation that never had
//! two.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Permission, PermissionSet, Problem,
    ids::{OrgId, SensitiveChangeId, UserId},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::role::PlatformRole;

lifecycle::lifecycle! {
    /// Nothing holds before somebody else than who proposed it applies it.
    SensitiveChangeLifecycle = "sensitive_change", initial Proposed;
    states SensitiveChangeState { Proposed = "proposed", Applied = "applied", Rejected = "rejected" }
    events SensitiveChangeEvent { Approve = "approve", Reject = "reject" }
    Proposed on Approve => Applied;
    Proposed on Reject => Rejected;
}

lifecycle::named_enum! {
    SensitiveChangeKind = "sensitive change kind" {
        PolicySet = "policy_set",
        PolicyUnset = "policy_unset",
        PlatformRolesSet = "platform_roles_set",
    }
}

impl SensitiveChangeKind {
    /// What whoever applies it must be allowed to do besides approving.
    pub const fn permission(self) -> Permission {
        match self {
            Self::PolicySet | Self::PolicyUnset => Permission::PlatformPolicyManage,
            Self::PlatformRolesSet => Permission::PlatformUserManage,
        }
    }
}

/// A change that two people make.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SensitiveChange {
    pub id: SensitiveChangeId,
    pub kind: SensitiveChangeKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_key: Option<String>,
    /// The organization for which the policy value holds; none for the whole platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub org_id: Option<OrgId>,
    /// Whose platform roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    /// The policy value, or all the platform roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    pub reason: String,
    /// `proposed`: it waits for another administrator.
    pub state: SensitiveChangeState,
    pub proposed_by: UserId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<UserId>,
    /// Made by one person: a right was taken away, or the second administrator of a new installation was appointed.
    pub alone: bool,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Proof that another person than who proposed it decided on a change. Whatever only two people may do takes one.
#[derive(Clone, Copy, Debug)]
pub struct SecondPerson(());

impl SecondPerson {
    pub fn decides(proposed_by: UserId, decides: UserId) -> Result<Self, Problem> {
        if proposed_by != decides {
            return Ok(Self(()));
        }
        let text = "You proposed this change; another administrator must approve or reject it.";
        Err(Problem::new(Code::InsufficientPermissions, text)
            .detail("reason", "second_approver_required")
            .suggest("Ask another platform administrator to approve or reject it."))
    }
}

/// Keys that say above which amount a second person is needed end so.
pub fn policy_needs_second_person(key: &str) -> bool {
    key.ends_with("_approval_minor")
}

/// Whether one person may change this policy.
pub fn check_policy_alone(key: &str) -> Result<(), Problem> {
    if !policy_needs_second_person(key) {
        return Ok(());
    }
    let text =
        format!("{key} controls when a second person is needed, so its changes need two administrators.");
    let then = format!(
        "Propose it with `gpuaas platform changes propose-policy {key} VALUE --reason WHY`, \
         and let another platform administrator approve it."
    );
    Err(Problem::new(Code::InsufficientPermissions, text)
        .detail("reason", "second_approver_required")
        .suggest(then))
}

/// Whether these roles let somebody approve what somebody else proposed.
pub fn may_approve(roles: &[PlatformRole]) -> bool {
    roles.iter().any(|role| role.role().permissions().holds(Permission::MoneyManage))
}

/// Whether one person may give somebody the right to approve: only while there is nobody else who has it, nor ever was.
pub fn check_appoint_alone(others_may_approve: bool, ever_changed: bool) -> Result<(), Problem> {
    if !others_may_approve && !ever_changed {
        return Ok(());
    }
    let text = "These roles include the permission to approve, so the change needs two administrators.";
    Err(Problem::new(Code::InsufficientPermissions, text)
        .detail("reason", "second_approver_required")
        .suggest(
            "Propose it with `gpuaas platform changes propose-roles USER ROLES --reason WHY`, \
         and let another platform administrator approve it.",
        ))
}

/// Whether one person may reset the password of somebody with these roles: the one who knows the password of somebody who may
/// approve is two people.
pub fn check_reset_alone(roles: &[PlatformRole], is_own: bool) -> Result<(), Problem> {
    if is_own || !may_approve(roles) {
        return Ok(());
    }
    let text = "The password of an administrator who may approve cannot be reset by another administrator.";
    Err(Problem::new(Code::InsufficientPermissions, text)
        .detail("reason", "second_approver_required")
        .suggest("Revoke their role platform_admin first; granting it again needs two administrators."))
}

/// Whether somebody with these permissions may apply or reject such a change.
pub fn check_decide(kind: SensitiveChangeKind, held: PermissionSet) -> Result<(), Problem> {
    if held.holds(kind.permission()) {
        return Ok(());
    }
    let text = format!("This decision needs {}.", kind.permission().name());
    Err(Problem::new(Code::InsufficientPermissions, text))
}

#[cfg(test)]
mod tests {
    use kernel::Role;

    use super::*;

    #[test]
    fn nobody_is_their_own_second_person() {
        let [one, other] = [1, 2].map(|n| UserId::from(uuid::Uuid::from_u128(n)));
        assert!(SecondPerson::decides(one, one).is_err());
        assert!(SecondPerson::decides(one, other).is_ok());
    }

    #[test]
    fn the_amounts_above_which_two_are_needed_are_changed_by_two_and_nothing_else_is() {
        let two: Vec<_> = kernel::policy::ALL
            .iter()
            .map(|definition| definition.key)
            .filter(|key| check_policy_alone(key).is_err())
            .collect();
        assert!(two.contains(&"billing.adjustment_approval_minor"), "{two:?}");
        assert!(two.iter().all(|key| key.contains("approval")), "{two:?}");
    }

    #[test]
    fn the_right_to_approve_is_given_alone_once_in_the_life_of_an_installation() {
        assert!(check_appoint_alone(false, false).is_ok());
        for (others, ever) in [(true, false), (false, true), (true, true)] {
            assert!(check_appoint_alone(others, ever).is_err(), "{others} {ever}");
        }
        assert!(check_reset_alone(&[PlatformRole::PlatformAdmin], true).is_ok());
        assert!(check_reset_alone(&[PlatformRole::PlatformAdmin], false).is_err());
        assert!(check_reset_alone(&[PlatformRole::PlatformOps], false).is_ok());
        assert!(may_approve(&[PlatformRole::PlatformOps, PlatformRole::PlatformAdmin]));
        assert!(!may_approve(&[PlatformRole::PlatformOps, PlatformRole::PlatformAuditor]));
    }

    #[test]
    fn who_decides_may_do_what_is_decided() {
        for kind in SensitiveChangeKind::ALL {
            assert!(check_decide(kind, Role::PlatformAdmin.permissions()).is_ok());
            assert!(check_decide(kind, Role::PlatformOps.permissions()).is_err());
        }
    }
}
