//! Minting for logs of nodes: an operator gets a token, and the node a grant that only the token opens.

use chrono::{DateTime, TimeDelta, Utc};
use endpoint::Caller;
use fleet::api::{GrantRequest, node_require};
use kernel::{Failure, ids::NodeId, secret::ShownOnce};
use node_proto::grant::{Owner, Target};
use pg::{WriteTx, created};
use serde::Serialize;

use crate::{
    Terminals,
    model::{
        log::{LogSource, NodeLogTokenIssued},
        token::TerminalToken,
    },
    store,
};

/// How long a token waits for its use.
const GOOD_FOR: TimeDelta = TimeDelta::seconds(60);

/// What somebody wants to follow.
pub struct WantedLog {
    pub node: NodeId,
    pub source: LogSource,
    /// Recent lines that come first.
    pub lines: u32,
}

/// As the audit trail keeps it.
#[derive(Serialize)]
struct Minted {
    source: LogSource,
    expires_at: DateTime<Utc>,
}

pub async fn log_token_create(
    terminals: &Terminals,
    tx: &mut WriteTx,
    caller: &Caller,
    wanted: WantedLog,
) -> Result<NodeLogTokenIssued, Failure> {
    let WantedLog { node, source, lines } = wanted;
    node_require(tx.conn(), node).await?;
    let ambient = terminals.db.ambient();
    let request = GrantRequest {
        node,
        owner: Owner::Node,
        target: Target::Log { source: source.name().to_owned(), lines },
        single_use: true,
        good_for: GOOD_FOR,
    };
    let grant = terminals.fleet.grant_sign(tx, request).await?;
    let token = TerminalToken::random(ambient);
    let sealed_grant = token.seal(ambient, &grant)?;
    let now = ambient.now();
    let expires_at = now + GOOD_FOR;
    let new = store::log_tokens::NewLogToken {
        hash: token.hash(),
        node_id: node,
        sign_in: caller.sign_in(),
        sealed_grant: &sealed_grant,
        created_at: now,
        expires_at,
    };
    store::log_tokens::insert(tx, &new).await?;
    created(tx, "node", node, &Minted { source, expires_at })?;
    Ok(NodeLogTokenIssued {
        token: ShownOnce::new(token.text()),
        expires_at,
        url: format!("/ws/node-logs/{node}"),
    })
}
