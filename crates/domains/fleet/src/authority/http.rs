//! Endpoints of trust: generations of the authority, signers, and the list of them.

use endpoint::{Created, Empty, Endpoint, Given, In, Json, ScopeKind, Write, get, post};
use kernel::{Code, Failure, Page, PageQuery, Permission, ids::AuthorityId, text::Reason};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::{
    Trust,
    model::{Step, authority::Authority, keyset::KeysetView, signer::Signer},
};

/// What a rotation can run into.
const REFUSALS: &[Code] = &[
    Code::InvalidTransition,
    Code::AlreadyExists,
    Code::InUse,
    Code::Unprocessable,
    Code::ServiceUnavailable,
];

pub fn endpoints(trust: &Trust) -> Vec<Endpoint> {
    let mut all = authorities(trust);
    all.extend(signers(trust));
    all
}

fn authorities(trust: &Trust) -> Vec<Endpoint> {
    vec![
        get(
            "/api/v1/platform/trust/authorities",
            "authority_list",
            "List the generations of the certificate authority",
        )
        .in_scope(ScopeKind::Platform)
        .needs(Permission::FleetRead)
        .handle(trust.clone(), authority_list),
        post("/api/v1/platform/trust/authorities", "authority_stage", "Stage a new generation of the certificate authority")
            .describe("Nodes receive its root with their next report; `nodes_confirmed` counts those that trust it.")
            .in_scope(ScopeKind::Platform)
            .errors(REFUSALS)
            .needs(Permission::TrustManage)
            .audited("trust.authority.stage")
            .handle(trust.clone(), authority_stage),
        post(
            "/api/v1/platform/trust/authorities/{authority_id}/activate",
            "authority_activate",
            "Issue certificates from a staged generation",
        )
        .describe("The previous generation enters its grace period. Refused until every enrolled node in service trusts the new root.")
        .in_scope(ScopeKind::Platform)
        .errors(REFUSALS)
        .needs(Permission::TrustManage)
        .audited("trust.authority.activate")
        .handle(trust.clone(), authority_activate),
        post(
            "/api/v1/platform/trust/authorities/{authority_id}/retire",
            "authority_retire",
            "Retire a generation in its grace period",
        )
        .describe("Refused while valid certificates of nodes were issued by it.")
        .in_scope(ScopeKind::Platform)
        .errors(REFUSALS)
        .needs(Permission::TrustManage)
        .audited("trust.authority.retire")
        .handle(trust.clone(), authority_retire),
        post(
            "/api/v1/platform/trust/authorities/{authority_id}/revoke",
            "authority_revoke",
            "Revoke a generation immediately",
        )
        .describe("Its certificates are refused. The staged generation replaces an active one; every node must trust it, unless force is set.")
        .in_scope(ScopeKind::Platform)
        .errors(REFUSALS)
        .needs(Permission::TrustManage)
        .audited("trust.authority.revoke")
        .handle(trust.clone(), authority_revoke),
    ]
}

fn signers(trust: &Trust) -> Vec<Endpoint> {
    vec![
        get("/api/v1/platform/trust/signers", "signer_list", "List the task signers")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::ServiceUnavailable])
            .needs(Permission::FleetRead)
            .handle(trust.clone(), signer_list),
        get("/api/v1/platform/trust/keyset", "keyset_get", "Show the signed keyset that nodes trust")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::ServiceUnavailable])
            .needs(Permission::FleetRead)
            .handle(trust.clone(), keyset_get),
        post("/api/v1/platform/trust/signers", "signer_stage", "Stage a new signer")
            .describe("Its private key is created outside the database. Nodes receive the new keyset with their next report.")
            .in_scope(ScopeKind::Platform)
            .errors(REFUSALS)
            .needs(Permission::TrustManage)
            .audited("trust.signer.stage")
            .handle(trust.clone(), signer_stage),
        post("/api/v1/platform/trust/signers/{signer_version}/activate", "signer_activate", "Sign with a staged signer")
            .describe("The previous signer enters its grace period. Refused until every enrolled node in service has the new keyset.")
            .in_scope(ScopeKind::Platform)
            .errors(REFUSALS)
            .needs(Permission::TrustManage)
            .audited("trust.signer.activate")
            .handle(trust.clone(), signer_activate),
        post(
            "/api/v1/platform/trust/signers/{signer_version}/retire",
            "signer_retire",
            "Retire a signer in its grace period",
        )
        .describe("Its key is destroyed.")
        .in_scope(ScopeKind::Platform)
        .errors(REFUSALS)
        .needs(Permission::TrustManage)
        .audited("trust.signer.retire")
        .handle(trust.clone(), signer_retire),
        post("/api/v1/platform/trust/signers/{signer_version}/revoke", "signer_revoke", "Revoke a signer immediately")
            .describe("Nodes refuse everything that it signed. The staged signer replaces an active one.")
            .in_scope(ScopeKind::Platform)
            .errors(REFUSALS)
            .needs(Permission::TrustManage)
            .audited("trust.signer.revoke")
            .handle(trust.clone(), signer_revoke),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct AuthorityPath {
    authority_id: AuthorityId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct SignerPath {
    #[serde(deserialize_with = "number")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    signer_version: u32,
}

/// Paths carry numbers as text.
fn number<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    let text = String::deserialize(d)?;
    let number = text.parse::<i32>().ok().filter(|n| *n > 0 && n.to_string() == text);
    let number = number.and_then(|n| u32::try_from(n).ok());
    number.ok_or_else(|| serde::de::Error::custom("must be an integer from 1 to 2147483647"))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TrustStage {
    /// Stands in the audit trail.
    #[serde(default)]
    reason: Given<Reason>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TrustStep {
    /// Do it although nodes would be left behind; needs a reason.
    #[serde(default)]
    force: bool,
    /// Stands in the audit trail.
    #[serde(default)]
    reason: Given<Reason>,
}

impl From<TrustStep> for Step {
    fn from(body: TrustStep) -> Self {
        Self { force: body.force, reason: body.reason.0 }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AuthorityRevoke {
    /// Do it although nodes would be left behind.
    #[serde(default)]
    force: bool,
    /// Stands in the audit trail.
    reason: Reason,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SignerRevoke {
    /// Stands in the audit trail.
    reason: Reason,
}

async fn authority_list(
    trust: Trust,
    mut tx: ReadTx,
    input: In<Empty, PageQuery, ()>,
) -> Result<Json<Page<Authority>>, Failure> {
    Ok(Json(trust.authority_list(&mut tx, &input.query).await?))
}

async fn authority_stage(
    trust: Trust,
    mut tx: Write,
    input: In<Empty, Empty, Json<TrustStage>>,
) -> Result<Created<Authority>, Failure> {
    Ok(Created(trust.authority_stage(&mut tx, input.body.0.reason.0).await?))
}

async fn authority_activate(
    trust: Trust,
    mut tx: Write,
    input: In<AuthorityPath, Empty, Json<TrustStep>>,
) -> Result<Json<Authority>, Failure> {
    Ok(Json(trust.authority_activate(&mut tx, input.path.authority_id, input.body.0.into()).await?))
}

async fn authority_retire(
    trust: Trust,
    mut tx: Write,
    input: In<AuthorityPath, Empty, Json<TrustStep>>,
) -> Result<Json<Authority>, Failure> {
    Ok(Json(trust.authority_retire(&mut tx, input.path.authority_id, input.body.0.into()).await?))
}

async fn authority_revoke(
    trust: Trust,
    mut tx: Write,
    input: In<AuthorityPath, Empty, Json<AuthorityRevoke>>,
) -> Result<Json<Authority>, Failure> {
    let step = Step { force: input.body.0.force, reason: Some(input.body.0.reason) };
    Ok(Json(trust.authority_revoke(&mut tx, input.path.authority_id, step).await?))
}

async fn signer_list(
    trust: Trust,
    mut tx: ReadTx,
    input: In<Empty, PageQuery, ()>,
) -> Result<Json<Page<Signer>>, Failure> {
    Ok(Json(trust.signer_list(&mut tx, &input.query).await?))
}

async fn keyset_get(trust: Trust, _: ReadTx, _: In<Empty, Empty, ()>) -> Result<Json<KeysetView>, Failure> {
    Ok(Json(trust.keyset_get().await?))
}

async fn signer_stage(
    trust: Trust,
    mut tx: Write,
    input: In<Empty, Empty, Json<TrustStage>>,
) -> Result<Created<Signer>, Failure> {
    Ok(Created(trust.signer_stage(&mut tx, input.body.0.reason.0).await?))
}

async fn signer_activate(
    trust: Trust,
    mut tx: Write,
    input: In<SignerPath, Empty, Json<TrustStep>>,
) -> Result<Json<Signer>, Failure> {
    Ok(Json(trust.signer_activate(&mut tx, input.path.signer_version, input.body.0.into()).await?))
}

async fn signer_retire(
    trust: Trust,
    mut tx: Write,
    input: In<SignerPath, Empty, Json<TrustStep>>,
) -> Result<Json<Signer>, Failure> {
    Ok(Json(trust.signer_retire(&mut tx, input.path.signer_version, input.body.0.into()).await?))
}

async fn signer_revoke(
    trust: Trust,
    mut tx: Write,
    input: In<SignerPath, Empty, Json<SignerRevoke>>,
) -> Result<Json<Signer>, Failure> {
    Ok(Json(trust.signer_revoke(&mut tx, input.path.signer_version, input.body.0.reason).await?))
}
