//! The ledger of an organization: listed, exported, verified.

use endpoint::{Empty, Endpoint, Given, In, Json, Moment, Ndjson, OrgPath, ScopeKind, get};
use kernel::{
    Failure, Page, PageQuery, Permission,
    ids::{OrgId, ProjectId},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use crate::{
    Billing,
    model::{account::PostingKind, ledger_item::LedgerItem},
    service::{
        chains::{LedgerVerification, LedgerVerifier, LedgersVerification, ledger_export},
        ledger::{Filter, LedgerEntry, LedgerTotals, ledger_get, ledger_list, ledger_totals},
    },
};

pub fn endpoints(billing: &Billing) -> Vec<Endpoint> {
    const EXPORT: &str = "NDJSON: a line with the head of the chain, then each posting, its lines, and its checkpoint when it \
                          was signed. `gpuaas ledger verify --file` verifies such a file offline.";
    const VERIFY: &str = "Verifies the hash chain, the sum of every posting and every checkpoint; reports \
                          the first fault by posting and line.";
    let verifier = LedgerVerifier::new(billing.clone());
    vec![
        get("/api/v1/orgs/{org_id}/billing/ledger", "ledger_list", "List the ledger of an organization")
            .describe("Postings without their lines, newest first, each with amount, direction and what it was for.")
            .in_scope(ScopeKind::Org)
            .needs(Permission::BillingRead)
            .handle(billing.clone(), list),
        get(
            "/api/v1/orgs/{org_id}/billing/ledger/export",
            "ledger_export",
            "Export the ledger of an organization",
        )
        .describe(EXPORT)
        .in_scope(ScopeKind::Org)
        .needs(Permission::BillingRead)
        .handle(billing.clone(), export),
        get(
            "/api/v1/orgs/{org_id}/billing/ledger/verify",
            "ledger_verify",
            "Verify the ledger of an organization",
        )
        .describe(VERIFY)
        .in_scope(ScopeKind::Org)
        .needs(Permission::BillingRead)
        .handle(verifier.clone(), verify),
        get("/api/v1/orgs/{org_id}/billing/ledger/{seq}", "ledger_get", "Show a posting with its lines")
            .in_scope(ScopeKind::Org)
            .needs(Permission::BillingRead)
            .handle(billing.clone(), show),
        get("/api/v1/platform/billing/ledger/verify", "platform_ledger_verify", "Verify every ledger")
            .describe(VERIFY)
            .in_scope(ScopeKind::Platform)
            .needs(Permission::MoneyRead)
            .handle(verifier, platform_verify),
        get("/api/v1/platform/billing/totals", "platform_ledger_totals", "Show the totals of all ledgers")
            .describe("Totals by account; the accounts of a currency sum to zero.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::MoneyRead)
            .handle(billing.clone(), totals),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct PostingPath {
    org_id: OrgId,
    seq: Seq,
}

/// The place of a posting in its chain.
#[derive(Clone, Copy, Debug)]
struct Seq(i64);

impl<'de> Deserialize<'de> for Seq {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        // Path parameters are text.
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        match text.parse() {
            Ok(seq) if seq > 0 => Ok(Self(seq)),
            _ => Err(serde::de::Error::custom("must be an integer of at least 1")),
        }
    }
}

impl JsonSchema for Seq {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Seq".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "format": "int64", "minimum": 1 })
    }
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct LedgerQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only postings of this kind.
    #[serde(default)]
    kind: Given<PostingKind>,
    /// Only postings with a line of this project.
    #[serde(default)]
    project_id: Given<ProjectId>,
    /// Only from this time on.
    #[serde(default)]
    from: Given<Moment>,
    /// Only before this time.
    #[serde(default)]
    to: Given<Moment>,
}

async fn list(
    billing: Billing,
    mut tx: ReadTx,
    input: In<OrgPath, LedgerQuery, ()>,
) -> Result<Json<Page<LedgerItem>>, Failure> {
    let query = input.query;
    let filter = Filter {
        kind: query.kind.0,
        project: query.project_id.0.map(ProjectId::uuid),
        from: query.from.0.map(|moment| moment.0),
        to: query.to.0.map(|moment| moment.0),
    };
    Ok(Json(ledger_list(&billing, &mut tx, input.path.org_id, &filter, &query.page).await?))
}

async fn show(
    _: Billing,
    mut tx: ReadTx,
    input: In<PostingPath, Empty, ()>,
) -> Result<Json<LedgerEntry>, Failure> {
    Ok(Json(ledger_get(&mut tx, input.path.org_id, input.path.seq.0).await?))
}

async fn export(billing: Billing, _: ReadTx, input: In<OrgPath, Empty, ()>) -> Result<Ndjson, Failure> {
    Ok(Ndjson(ledger_export(billing, input.path.org_id)))
}

async fn verify(
    verifier: LedgerVerifier,
    tx: ReadTx,
    input: In<OrgPath, Empty, ()>,
) -> Result<Json<LedgerVerification>, Failure> {
    // It takes a connection for each step: this one must not be held meanwhile.
    drop(tx);
    Ok(Json(verifier.verify(input.path.org_id).await?))
}

async fn platform_verify(
    verifier: LedgerVerifier,
    tx: ReadTx,
    _: In<Empty, Empty, ()>,
) -> Result<Json<LedgersVerification>, Failure> {
    drop(tx);
    Ok(Json(verifier.verify_all().await?))
}

async fn totals(_: Billing, mut tx: ReadTx, _: In<Empty, Empty, ()>) -> Result<Json<LedgerTotals>, Failure> {
    Ok(Json(ledger_totals(&mut tx).await?))
}
