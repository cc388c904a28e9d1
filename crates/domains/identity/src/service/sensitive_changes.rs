//! Changes that one administrator proposes and another applies.

use kernel::{
    Code, Failure, Page, PageQuery, PermissionSet, Problem, Role,
    ids::{OrgId, SensitiveChangeId, UserId},
    policy,
    text::Reason,
};
use lifecycle::{Lifecycle as _, Named as _};
use pg::{ReadTx, WriteTx};
use serde_json::{Value, json};

use super::{
    changed, created, found,
    people::platform_roles_apply,
    policies::{NewPolicy, Place, policy_set_decided, policy_unset_decided},
};
use crate::{
    model::{
        role::PlatformRole,
        sensitive_change::{
            SecondPerson, SensitiveChange, SensitiveChangeEvent, SensitiveChangeKind,
            SensitiveChangeLifecycle, SensitiveChangeState, check_decide, may_approve,
            policy_needs_second_person,
        },
    },
    store::{self, sensitive_changes},
};

/// What is to be changed.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// A policy value for an organization or the whole platform; without a value what is stored there is removed.
    Policy { key: String, org: Option<OrgId>, value: Option<Value> },
    /// All the platform roles of somebody.
    PlatformRoles { user: UserId, roles: Vec<PlatformRole> },
}

/// Keeps a change for another administrator to decide on.
pub async fn sensitive_change_propose(
    tx: &mut WriteTx,
    by: UserId,
    wanted: Wanted,
    reason: Reason,
) -> Result<SensitiveChange, Failure> {
    let mut change = new_change(tx, by, reason.into_string());
    match wanted {
        Wanted::Policy { key, org, value } => {
            let definition = found(policy::find(&key), "policy")?;
            if !policy_needs_second_person(&key) {
                let text = format!("{key} is set by one person.");
                return Err(changed_directly(text, format!("gpuaas policy set {key}")).into());
            }
            if let Some(org) = org {
                found(store::orgs::get(tx.conn(), org).await?, "organization")?;
            }
            if let Some(value) = &value {
                definition.check(value).map_err(|message| Problem::field("value", message))?;
            }
            change.kind = if value.is_some() {
                SensitiveChangeKind::PolicySet
            } else {
                SensitiveChangeKind::PolicyUnset
            };
            (change.policy_key, change.org_id, change.value) = (Some(key), org, value);
        }
        Wanted::PlatformRoles { user, roles } => {
            found(store::people::platform_get(tx.conn(), user).await?, "user")?;
            if !may_approve(&roles) {
                let text = "Roles without the right to approve are set by one person.";
                let command = format!("gpuaas platform users set-roles {user}");
                return Err(changed_directly(text.to_owned(), command).into());
            }
            (change.user_id, change.value) = (Some(user), Some(json!(roles)));
        }
    }
    sensitive_changes::insert(tx.conn(), &change).await?;
    created(tx, "sensitive_change", change.id, &change)?;
    Ok(change)
}

fn changed_directly(text: String, command: String) -> Problem {
    Problem::new(Code::Unprocessable, text).suggest(format!("Set it directly: `{command}`."))
}

fn new_change(tx: &WriteTx, by: UserId, reason: String) -> SensitiveChange {
    let ambient = tx.db().ambient();
    let now = ambient.now();
    SensitiveChange {
        id: ambient.id(),
        kind: SensitiveChangeKind::PlatformRolesSet,
        policy_key: None,
        org_id: None,
        user_id: None,
        value: None,
        reason,
        state: SensitiveChangeLifecycle::INITIAL,
        proposed_by: by,
        decided_by: None,
        alone: false,
        version: 1,
        created_at: now,
        updated_at: now,
    }
}

/// Keeps that one person gave or took the right to approve: from then on giving it takes two.
pub(super) async fn made_alone(
    tx: &mut WriteTx,
    user: UserId,
    roles: &[PlatformRole],
) -> Result<(), Failure> {
    let by = UserId::from(tx.permit().actor().id.unwrap_or_default());
    let mut change = new_change(tx, by, "set by one person".to_owned());
    (change.user_id, change.value) = (Some(user), Some(json!(roles)));
    change.state = SensitiveChangeState::Applied;
    (change.decided_by, change.alone) = (Some(by), true);
    Ok(sensitive_changes::insert(tx.conn(), &change).await?)
}

/// Who decides, and what they may do.
#[derive(Clone, Copy, Debug)]
pub struct Decider<'a> {
    pub user: UserId,
    pub roles: &'a [Role],
    pub permissions: PermissionSet,
}

/// Makes the change that another administrator proposed.
pub async fn sensitive_change_approve(
    tx: &mut WriteTx,
    by: Decider<'_>,
    id: SensitiveChangeId,
) -> Result<SensitiveChange, Failure> {
    decide(tx, by, id, SensitiveChangeEvent::Approve).await
}

/// Refuses it: it is never made.
pub async fn sensitive_change_reject(
    tx: &mut WriteTx,
    by: Decider<'_>,
    id: SensitiveChangeId,
) -> Result<SensitiveChange, Failure> {
    decide(tx, by, id, SensitiveChangeEvent::Reject).await
}

async fn decide(
    tx: &mut WriteTx,
    by: Decider<'_>,
    id: SensitiveChangeId,
    event: SensitiveChangeEvent,
) -> Result<SensitiveChange, Failure> {
    let before = found(sensitive_changes::get_for_update(tx.conn(), id).await?, "sensitive_change")?;
    let Some(next) = SensitiveChangeLifecycle::next(before.state, event) else {
        let text = format!("This change is {} already.", before.state);
        return Err(Problem::new(Code::InvalidTransition, text).detail("state", before.state.name()).into());
    };
    let second = SecondPerson::decides(before.proposed_by, by.user)?;
    check_decide(before.kind, by.permissions)?;
    if next == SensitiveChangeState::Applied {
        apply(tx, second, by.roles, before.kind, &before).await?;
    }
    let mut after = before.clone();
    after.state = next;
    after.decided_by = Some(by.user);
    after.version += 1;
    after.updated_at = tx.db().ambient().now();
    sensitive_changes::decide(tx.conn(), &after).await?;
    changed(tx, "sensitive_change", id, &before, &after)?;
    Ok(after)
}

async fn apply(
    tx: &mut WriteTx,
    second: SecondPerson,
    roles: &[Role],
    kind: SensitiveChangeKind,
    change: &SensitiveChange,
) -> Result<(), Failure> {
    let broken = || Failure::bug(format!("{} lacks what it is to change", change.id));
    let place = change.org_id.map_or(Place::Global, Place::Org);
    let key = change.policy_key.as_deref();
    match kind {
        SensitiveChangeKind::PolicySet => {
            let (key, value) = key.zip(change.value.as_ref()).ok_or_else(broken)?;
            policy_set_decided(tx, second, place, key, NewPolicy::bound(value), roles).await?;
        }
        SensitiveChangeKind::PolicyUnset => {
            policy_unset_decided(tx, second, place, key.ok_or_else(broken)?, roles).await?;
        }
        SensitiveChangeKind::PlatformRolesSet => {
            let wanted: Vec<PlatformRole> = serde_json::from_value(change.value.clone().unwrap_or_default())?;
            platform_roles_apply(tx, second, change.user_id.ok_or_else(broken)?, wanted).await?;
        }
    }
    Ok(())
}

pub async fn sensitive_change_get(
    tx: &mut ReadTx,
    id: SensitiveChangeId,
) -> Result<SensitiveChange, Failure> {
    Ok(found(sensitive_changes::get(tx.conn(), id).await?, "sensitive_change")?)
}

/// Newest first.
pub async fn sensitive_change_list(
    tx: &mut ReadTx,
    state: Option<SensitiveChangeState>,
    page: &PageQuery,
) -> Result<Page<SensitiveChange>, Failure> {
    Ok(page.page(sensitive_changes::list(tx.conn(), state, page).await?, |change| change.id.uuid()))
}
