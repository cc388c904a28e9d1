//! The table of what is done about health findings.

use kernel::{Code, Failure, Page, Problem, text::Reason};
use pg::{ReadTx, WriteTx};

use super::{changed, created, removed};
use crate::{
    model::{
        health_rule::{HealthAction, HealthRule},
        page::KeyPageQuery,
        text::RulePattern,
    },
    store,
};

/// Every report reads the whole table.
const MOST_RULES: i64 = 1000;

pub async fn health_rule_list(tx: &mut ReadTx, page: &KeyPageQuery) -> Result<Page<HealthRule>, Failure> {
    let rules = store::health_rules::list(tx.conn(), page.after(), page.limit()).await?;
    Ok(page.page(rules, |rule| rule.pattern.clone()))
}

/// Findings that are open already keep the action that they were opened with.
pub async fn health_rule_put(
    tx: &mut WriteTx,
    pattern: &RulePattern,
    (action, meaning): (HealthAction, Reason),
    if_match: Option<i64>,
) -> Result<HealthRule, Failure> {
    let now = tx.db().ambient().now();
    let before = store::health_rules::get(tx.conn(), pattern.as_str()).await?;
    if before.is_none() && store::health_rules::count(tx.conn()).await? >= MOST_RULES {
        return Err(
            Problem::new(Code::QuotaExceeded, "There are as many health rules as there may be.").into()
        );
    }
    let rule = (pattern.as_str(), action, meaning.as_str());
    let after = store::health_rules::put(tx.conn(), rule, if_match, now).await?.or_problem("health_rule")?;
    match &before {
        Some(before) => changed(tx, "health_rule", pattern, before, &after)?,
        None => created(tx, "health_rule", pattern, &after)?,
    }
    Ok(after)
}

pub async fn health_rule_delete(
    tx: &mut WriteTx,
    pattern: &RulePattern,
    if_match: Option<i64>,
) -> Result<(), Failure> {
    let before = store::health_rules::delete(tx.conn(), pattern.as_str(), if_match)
        .await?
        .or_problem("health_rule")?;
    removed(tx, "health_rule", pattern, &before)
}
