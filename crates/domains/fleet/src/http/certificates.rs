//! Certificates of a node.

use endpoint::{Empty, Endpoint, In, Json, ScopeKind, Write, get, post};
use kernel::{Code, Failure, Page, Permission, text::Reason};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Given, NodePath};
use crate::{
    Fleet,
    model::{certificate::Certificate, page::KeyPageQuery, text::CertificateSerial},
    service::certificates::{node_certificate_revoke, node_certificates},
};

pub fn endpoints(fleet: &Fleet) -> Vec<Endpoint> {
    vec![
        get(
            "/api/v1/platform/nodes/{node_id}/certificates",
            "node_certificate_list",
            "List the certificates that were issued to a node",
        )
        .describe("Newest first.")
        .in_scope(ScopeKind::Platform)
        .needs(Permission::FleetRead)
        .handle(fleet.clone(), list),
        post(
            "/api/v1/platform/nodes/{node_id}/certificates/revoke",
            "node_certificate_revoke",
            "Revoke certificates of a node",
        )
        .describe(
            "Takes effect immediately: the node's next request is refused. Without a serial number, all \
             certificates are revoked, and the node can reconnect only with a repair token.",
        )
        .in_scope(ScopeKind::Platform)
        .errors(&[Code::InvalidTransition])
        .needs(Permission::FleetManage)
        .audited("node.certificate_revoke")
        .handle(fleet.clone(), revoke),
    ]
}

async fn list(
    fleet: Fleet,
    mut tx: ReadTx,
    input: In<NodePath, KeyPageQuery, ()>,
) -> Result<Json<Page<Certificate>>, Failure> {
    Ok(Json(node_certificates(&fleet, &mut tx, input.path.node_id, &input.query).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CertificateRevoke {
    reason: Reason,
    /// Only this one.
    #[serde(default)]
    serial: Given<CertificateSerial>,
}

#[derive(Serialize, JsonSchema)]
struct CertificatesRevoked {
    revoked: Vec<Certificate>,
}

async fn revoke(
    _: Fleet,
    mut tx: Write,
    input: In<NodePath, Empty, Json<CertificateRevoke>>,
) -> Result<Json<CertificatesRevoked>, Failure> {
    let body = input.body.0;
    let revoked =
        node_certificate_revoke(&mut tx, input.path.node_id, body.serial.0.as_ref(), &body.reason).await?;
    Ok(Json(CertificatesRevoked { revoked }))
}
