//! The audit trail: listed, exported, verified.

use endpoint::{Empty, Endpoint, In, Json, Moment, Ndjson, OrgPath, ScopeKind, get};
use kernel::{
    Failure, Page, PageQuery, Permission,
    audit_chain::{AuditRecord, PrincipalId},
    ids::OrgId,
    text::Term,
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Given;
use crate::{
    Identity,
    service::audit::{AuditVerification, AuditVerifier, Filter, audit_export, audit_list},
};

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    const EXPORT: &str = "NDJSON: a line with the head of the chain, then one line per row in order. \
                          `gpuaas audit verify` verifies such a file offline.";
    let verifier = AuditVerifier::new(identity.db().clone());
    vec![
        get("/api/v1/orgs/{org_id}/audit", "audit_list", "List the audit trail of an organization")
            .describe("Newest first.")
            .in_scope(ScopeKind::Org)
            .needs(Permission::AuditRead)
            .handle(identity.clone(), list),
        get("/api/v1/orgs/{org_id}/audit/export", "audit_export", "Export the audit trail of an organization")
            .describe(EXPORT)
            .in_scope(ScopeKind::Org)
            .needs(Permission::AuditRead)
            .handle(identity.clone(), export),
        get("/api/v1/orgs/{org_id}/audit/verify", "audit_verify", "Verify the audit trail of an organization")
            .describe("Verifies the hash chain and reports the first bad row.")
            .in_scope(ScopeKind::Org)
            .needs(Permission::AuditRead)
            .handle(verifier.clone(), verify),
        get("/api/v1/platform/audit", "platform_audit_list", "List an audit trail")
            .describe("Of the organization given by `org_id`, or the platform's own. Newest first.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformAuditRead)
            .handle(identity.clone(), platform_list),
        get("/api/v1/platform/audit/export", "platform_audit_export", "Export an audit trail")
            .describe(EXPORT)
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformAuditRead)
            .handle(identity.clone(), platform_export),
        get("/api/v1/platform/audit/verify", "platform_audit_verify", "Verify every audit trail")
            .describe("Verifies the hash chains of the platform and of every organization, and reports the first bad row of each.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformAuditRead)
            .handle(verifier, platform_verify),
    ]
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum ResultFilter {
    Allowed,
    Refused,
}

/// The filters of both lists. (Two plain structs: a query string cannot be flattened twice.)
macro_rules! audit_query {
    ($name:ident { $($(#[$doc:meta])* $field:ident: $kind:ty),* }) => {
        #[derive(Deserialize, JsonSchema)]
        #[schemars(inline)]
        struct $name {
            #[serde(flatten)]
            page: PageQuery,
            $($(#[$doc])* #[serde(default)] $field: Given<$kind>,)*
            /// Only what this user or service account did.
            #[serde(default)]
            actor_id: Given<PrincipalId>,
            /// Only this action, such as `project.create`.
            #[serde(default)]
            action: Given<Term>,
            #[serde(default)]
            result: Given<ResultFilter>,
            /// Only what was done to this thing.
            #[serde(default)]
            target_id: Given<Term>,
            /// Only from this time on.
            #[serde(default)]
            since: Given<Moment>,
            /// Only before this time.
            #[serde(default)]
            until: Given<Moment>,
        }

        impl $name {
            fn filter(&self) -> Filter {
                let result = self.result.0.map(|result| match result {
                    ResultFilter::Allowed => "allowed",
                    ResultFilter::Refused => "refused",
                });
                Filter {
                    actor_id: self.actor_id.0.map(PrincipalId::uuid),
                    action: self.action.0.as_ref().map(Term::to_string),
                    result: result.map(str::to_owned),
                    target_id: self.target_id.0.as_ref().map(Term::to_string),
                    since: self.since.0.map(|moment| moment.0),
                    until: self.until.0.map(|moment| moment.0),
                }
            }
        }
    };
}

audit_query!(AuditQuery {});
audit_query!(PlatformAuditQuery {
    /// The organization whose trail is meant; the platform's own when absent.
    org_id: OrgId
});

async fn list(
    _: Identity,
    mut tx: ReadTx,
    input: In<OrgPath, AuditQuery, ()>,
) -> Result<Json<Page<AuditRecord>>, Failure> {
    let (org, query) = (Some(input.path.org_id), input.query);
    Ok(Json(audit_list(&mut tx, org, &query.filter(), &query.page).await?))
}

async fn export(identity: Identity, _: ReadTx, input: In<OrgPath, Empty, ()>) -> Result<Ndjson, Failure> {
    Ok(Ndjson(audit_export(identity.db().clone(), Some(input.path.org_id))))
}

async fn verify(
    verifier: AuditVerifier,
    tx: ReadTx,
    input: In<OrgPath, Empty, ()>,
) -> Result<Json<AuditVerification>, Failure> {
    // It takes a connection for each step: this one must not be held meanwhile.
    drop(tx);
    Ok(Json(verifier.verify(Some(input.path.org_id)).await?))
}

async fn platform_list(
    _: Identity,
    mut tx: ReadTx,
    input: In<Empty, PlatformAuditQuery, ()>,
) -> Result<Json<Page<AuditRecord>>, Failure> {
    let query = input.query;
    Ok(Json(audit_list(&mut tx, query.org_id.0, &query.filter(), &query.page).await?))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ExportQuery {
    /// The organization whose trail is meant; the platform's own when absent.
    #[serde(default)]
    org_id: Given<OrgId>,
}

async fn platform_export(
    identity: Identity,
    _: ReadTx,
    input: In<Empty, ExportQuery, ()>,
) -> Result<Ndjson, Failure> {
    Ok(Ndjson(audit_export(identity.db().clone(), input.query.org_id.0)))
}

async fn platform_verify(
    verifier: AuditVerifier,
    tx: ReadTx,
    _: In<Empty, Empty, ()>,
) -> Result<Json<AuditVerification>, Failure> {
    drop(tx);
    Ok(Json(verifier.verify_all().await?))
}
