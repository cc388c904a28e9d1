//! Members of an organization.

use kernel::{
    Failure, Page, PageQuery, Role,
    ids::{OrgId, UserId},
};
use pg::{ReadTx, WriteTx};

use super::{changed, found, removed};
use crate::{
    model::{
        events::{MemberRemoved, MemberRoleChanged},
        membership::{self, Member},
        role::{Authority, MemberRole},
    },
    store,
};

pub async fn member_get(tx: &mut ReadTx, org: OrgId, user: UserId) -> Result<Member, Failure> {
    Ok(found(store::members::get(tx.conn(), org, user).await?, "member")?)
}

pub async fn member_list(tx: &mut ReadTx, org: OrgId, page: &PageQuery) -> Result<Page<Member>, Failure> {
    Ok(page.page(store::members::list(tx.conn(), org, page).await?, |member| member.id.uuid()))
}

pub async fn member_update(
    tx: &mut WriteTx,
    org: OrgId,
    user: UserId,
    role: Option<MemberRole>,
    if_match: Option<i64>,
    actor: &[Role],
) -> Result<Member, Failure> {
    let now = tx.db().ambient().now();
    // Owners first: whoever waits here then sees the role as the transaction before left it.
    let owners = store::members::lock_owners(tx.conn(), org).await?;
    let before = found(store::members::get(tx.conn(), org, user).await?, "member")?;
    let role = role.unwrap_or(before.role);
    membership::role_change(Authority::in_org(actor), before.role, role, owners)?;
    let swap = store::members::set_role(tx.conn(), org, user, &before, role, if_match, now).await?;
    swap.or_problem("member")?;
    let after = found(store::members::get(tx.conn(), org, user).await?, "member")?;
    changed(tx, "member", user, &before, &after)?;
    if before.role != role {
        tx.emit(&MemberRoleChanged { org_id: org, user_id: user, from: before.role, to: role })?;
    }
    tx.invalidate(format!("user:{}", user.uuid()));
    Ok(after)
}

/// Removes somebody from the organization and, with that, from its projects.
pub async fn member_delete(
    tx: &mut WriteTx,
    org: OrgId,
    user: UserId,
    if_match: Option<i64>,
    actor: &[Role],
) -> Result<(), Failure> {
    let owners = store::members::lock_owners(tx.conn(), org).await?;
    let before = found(store::members::get(tx.conn(), org, user).await?, "member")?;
    membership::removal(Authority::in_org(actor), before.role, owners)?;
    store::members::delete(tx.conn(), org, user, &before, if_match).await?.or_problem("member")?;
    removed(tx, "member", user, &before)?;
    tx.emit(&MemberRemoved { org_id: org, user_id: user })?;
    tx.invalidate(format!("user:{}", user.uuid()));
    // Values set for them went with the membership.
    tx.invalidate("policy".to_owned());
    Ok(())
}
