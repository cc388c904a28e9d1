//! What is done about health findings.

use endpoint::{Empty, Endpoint, In, Json, NoContent, ScopeKind, Write, delete, get, put};
use kernel::{Code, Failure, Page, Permission, text::Reason};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Fleet,
    model::{
        health_rule::{HealthAction, HealthRule},
        page::KeyPageQuery,
        text::RulePattern,
    },
    service::health_rules::{health_rule_delete, health_rule_list, health_rule_put},
};

pub fn endpoints(fleet: &Fleet) -> Vec<Endpoint> {
    const ONE: &str = "/api/v1/platform/health-rules/{pattern}";
    vec![
        get("/api/v1/platform/health-rules", "health_rule_list", "List health rules")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), list),
        put(ONE, "health_rule_put", "Create or change a health rule")
            .describe(
                "The longest matching pattern wins. Open findings are not re-evaluated. Changing which \
                 findings are credited to tenants also needs the permission `money.manage`.",
            )
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::Conflict, Code::QuotaExceeded])
            .needs(Permission::FleetManage)
            .audited("health_rule.put")
            .handle(fleet.clone(), set),
        delete(ONE, "health_rule_delete", "Delete a health rule")
            .describe(
                "Changing which findings are credited to tenants also needs the permission `money.manage`.",
            )
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::Conflict])
            .needs(Permission::FleetManage)
            .audited("health_rule.delete")
            .handle(fleet.clone(), remove),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct RulePath {
    pattern: RulePattern,
}

async fn list(
    _: Fleet,
    mut tx: ReadTx,
    input: In<Empty, KeyPageQuery, ()>,
) -> Result<Json<Page<HealthRule>>, Failure> {
    Ok(Json(health_rule_list(&mut tx, &input.query).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HealthRulePut {
    action: HealthAction,
    /// What the finding means, for people.
    meaning: Reason,
}

async fn set(
    _: Fleet,
    mut tx: Write,
    input: In<RulePath, Empty, Json<HealthRulePut>>,
) -> Result<Json<HealthRule>, Failure> {
    let (body, money) = (input.body.0, input.access.permissions().authorize(Permission::MoneyManage));
    let rule = (body.action, body.meaning);
    Ok(Json(health_rule_put(&mut tx, &input.path.pattern, rule, input.if_match, money).await?))
}

async fn remove(_: Fleet, mut tx: Write, input: In<RulePath, Empty, ()>) -> Result<NoContent, Failure> {
    let money = input.access.permissions().authorize(Permission::MoneyManage);
    health_rule_delete(&mut tx, &input.path.pattern, input.if_match, money).await?;
    Ok(NoContent)
}
