//! The table of what is done about health findings.

use kernel::{Code, Failure, Granted, Page, Permission, Problem, text::Reason};
use pg::{ReadTx, WriteTx};

use super::{changed, created, removed};
use crate::{
    model::{
        health_rule::{HealthAction, HealthRule, payments_differ},
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

/// The table as it was before a change. What the change does to money is asked of the whole table: removing a rule can make a
/// wider one decide.
struct RulesBefore(Vec<(String, HealthAction)>);

impl RulesBefore {
    async fn read(tx: &mut WriteTx) -> Result<Self, Failure> {
        store::health_rules::lock_changes(tx.conn()).await?;
        Ok(Self(store::health_rules::all(tx.conn()).await?))
    }

    /// Refuses the change that was made since when other findings are paid for because of it and `money` is not the right
    /// to move money.
    async fn check(self, tx: &mut WriteTx, money: Option<Granted>) -> Result<(), Failure> {
        let after = store::health_rules::all(tx.conn()).await?;
        let may = money.is_some_and(|granted| granted.permission() == Permission::MoneyManage);
        if may || !payments_differ(&self.0, &after) {
            return Ok(());
        }
        let permission = Permission::MoneyManage.name();
        let text = "This changes which findings are credited to tenants, which needs a permission for money.";
        Err(Problem::new(Code::InsufficientPermissions, text)
            .detail("permission", permission)
            .suggest(format!(
                "Ask somebody with the permission {permission} (a platform administrator) to change it."
            ))
            .into())
    }
}

/// Findings that are open already keep the action that they were opened with. A change of what is paid for needs `money`.
pub async fn health_rule_put(
    tx: &mut WriteTx,
    pattern: &RulePattern,
    (action, meaning): (HealthAction, Reason),
    if_match: Option<i64>,
    money: Option<Granted>,
) -> Result<HealthRule, Failure> {
    let now = tx.db().ambient().now();
    let rules = RulesBefore::read(tx).await?;
    let before = store::health_rules::get(tx.conn(), pattern.as_str()).await?;
    if before.is_none() && store::health_rules::count(tx.conn()).await? >= MOST_RULES {
        return Err(
            Problem::new(Code::QuotaExceeded, "The maximum number of health rules is reached.").into()
        );
    }
    let rule = (pattern.as_str(), action, meaning.as_str());
    let after = store::health_rules::put(tx.conn(), rule, if_match, now).await?.or_problem("health_rule")?;
    rules.check(tx, money).await?;
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
    money: Option<Granted>,
) -> Result<(), Failure> {
    let rules = RulesBefore::read(tx).await?;
    let before = store::health_rules::delete(tx.conn(), pattern.as_str(), if_match)
        .await?
        .or_problem("health_rule")?;
    rules.check(tx, money).await?;
    removed(tx, "health_rule", pattern, &before)
}
