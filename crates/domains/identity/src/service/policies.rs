//! Reading, explaining and setting policies.

use kernel::{
    Failure, Page, PageQuery, Problem, Role,
    ids::{OrgId, UserId},
    policy::{self, Definition},
};
use pg::{Connection, ReadTx, WriteTx};
use serde_json::Value;
use uuid::Uuid;

use super::found;
pub use crate::store::policies::Place;
use crate::{
    model::{
        events::PolicyChanged,
        policy::{
            PolicyAuthority, PolicyDefinition, PolicyEffective, PolicyExplanation, StoredValue, WantedValue,
            check_authority, check_replace, check_set, resolve,
        },
        sensitive_change::{SecondPerson, check_policy_alone},
    },
    store::{self, policies::NewValue},
};

fn definition(key: &str) -> Result<&'static Definition, Problem> {
    found(policy::find(key), "policy")
}

/// A fixed list in pages: the cursor of an item is its place.
fn page_of<T: Clone>(query: &PageQuery, all: Vec<T>) -> Page<T> {
    let after = usize::try_from(query.after().as_u128()).unwrap_or(usize::MAX);
    let limit = usize::try_from(query.limit()).unwrap_or(usize::MAX);
    let numbered: Vec<(usize, T)> =
        all.into_iter().enumerate().map(|(at, item)| (at + 1, item)).skip(after).take(limit).collect();
    query.page(numbered, |(at, _)| Uuid::from_u128(*at as u128)).map(|(_, item)| item)
}

pub fn policy_definition_list(page: &PageQuery) -> Page<PolicyDefinition> {
    page_of(page, policy::ALL.iter().copied().map(PolicyDefinition::from).collect())
}

/// The effective value of every key in a place.
pub async fn policy_list(
    tx: &mut ReadTx,
    place: Place,
    page: &PageQuery,
) -> Result<Page<PolicyEffective>, Failure> {
    let values = store::policies::values_in(tx.conn(), place, None).await?;
    let effective = |definition: &&'static Definition| {
        let of_key = values.iter().filter(|(key, _)| key == definition.key);
        let of_key: Vec<StoredValue> = of_key.map(|(_, stored)| stored.clone()).collect();
        resolve(definition, &of_key).brief()
    };
    Ok(page_of(page, policy::ALL.iter().map(effective).collect()))
}

async fn values(conn: &mut Connection, place: Place, key: &str) -> Result<Vec<StoredValue>, sqlx::Error> {
    let values = store::policies::values_in(conn, place, Some(key)).await?;
    Ok(values.into_iter().map(|(_, stored)| stored).collect())
}

pub async fn policy_explain(tx: &mut ReadTx, place: Place, key: &str) -> Result<PolicyExplanation, Failure> {
    let definition = definition(key)?;
    check_place(tx.conn(), place).await?;
    Ok(resolve(definition, &values(tx.conn(), place, key).await?))
}

/// A value and whether it is only a default for those below, rather than a bound.
#[derive(Clone, Copy, Debug)]
pub struct NewPolicy<'a> {
    pub value: &'a Value,
    pub is_default: bool,
}

impl<'a> NewPolicy<'a> {
    pub const fn bound(value: &'a Value) -> Self {
        Self { value, is_default: false }
    }
}

pub async fn policy_set(
    tx: &mut WriteTx,
    place: Place,
    key: &str,
    new: NewPolicy<'_>,
    if_match: Option<i64>,
    actor: &[Role],
) -> Result<PolicyExplanation, Failure> {
    check_policy_alone(key)?;
    store_value(tx, place, key, new, if_match, actor).await
}

/// Sets a value that only two people change.
pub(super) async fn policy_set_decided(
    tx: &mut WriteTx,
    _: SecondPerson,
    place: Place,
    key: &str,
    new: NewPolicy<'_>,
    actor: &[Role],
) -> Result<PolicyExplanation, Failure> {
    store_value(tx, place, key, new, None, actor).await
}

async fn store_value(
    tx: &mut WriteTx,
    place: Place,
    key: &str,
    new: NewPolicy<'_>,
    if_match: Option<i64>,
    actor: &[Role],
) -> Result<PolicyExplanation, Failure> {
    let definition = definition(key)?;
    check_place(tx.conn(), place).await?;
    let stored = values(tx.conn(), place, key).await?;
    let NewPolicy { value, is_default } = new;
    check_set(definition, WantedValue { scope: place.scope(), value, is_default }, &stored, actor)?;
    let before = resolve(definition, &stored);
    let new = NewValue {
        id: tx.db().ambient().uuid(),
        place,
        key,
        value,
        set_by: PolicyAuthority::from_roles(actor),
        is_default,
        updated_by: tx.permit().actor().id.unwrap_or_default(),
        now: tx.db().ambient().now(),
    };
    store::policies::set(tx.conn(), &new, if_match).await?.or_problem("policy_value")?;
    let after = resolve(definition, &values(tx.conn(), place, key).await?);
    finish(tx, place, key, &before, &after, Some(value.clone()))?;
    Ok(after)
}

/// Removes the value of exactly this place; what holds around it holds here again.
pub async fn policy_unset(
    tx: &mut WriteTx,
    place: Place,
    key: &str,
    if_match: Option<i64>,
    actor: &[Role],
) -> Result<(), Failure> {
    check_policy_alone(key)?;
    remove_value(tx, place, key, if_match, actor).await
}

/// Removes a value that only two people change.
pub(super) async fn policy_unset_decided(
    tx: &mut WriteTx,
    _: SecondPerson,
    place: Place,
    key: &str,
    actor: &[Role],
) -> Result<(), Failure> {
    remove_value(tx, place, key, None, actor).await
}

async fn remove_value(
    tx: &mut WriteTx,
    place: Place,
    key: &str,
    if_match: Option<i64>,
    actor: &[Role],
) -> Result<(), Failure> {
    let definition = definition(key)?;
    check_authority(definition, place.scope(), actor)?;
    let stored = values(tx.conn(), place, key).await?;
    check_replace(definition, place.scope(), &stored, actor)?;
    let before = resolve(definition, &stored);
    store::policies::remove(tx.conn(), place, key, if_match).await?.or_problem("policy_value")?;
    let after = resolve(definition, &values(tx.conn(), place, key).await?);
    finish(tx, place, key, &before, &after, None)
}

fn finish(
    tx: &mut WriteTx,
    place: Place,
    key: &str,
    before: &PolicyExplanation,
    after: &PolicyExplanation,
    value: Option<Value>,
) -> Result<(), Failure> {
    tx.record("policy", key, Some(before), Some(after))?;
    tx.emit(&PolicyChanged { key: key.to_owned(), scope: place.scope().name().to_owned(), value })?;
    tx.invalidate("policy".to_owned());
    Ok(())
}

/// A person's values belong to their membership.
async fn check_place(conn: &mut Connection, place: Place) -> Result<(), Failure> {
    if let Place::User(org, user) = place {
        check_member(conn, org, user).await?;
    }
    Ok(())
}

async fn check_member(conn: &mut Connection, org: OrgId, user: UserId) -> Result<(), Failure> {
    found(store::members::get(conn, org, user).await?, "member")?;
    Ok(())
}
