//! Rights to open one stream to a node: signed in the request of whoever asked.

use chrono::TimeDelta;
use kernel::{
    Code, Failure, Problem,
    ids::{NodeId, ServiceAccountId, UserId},
};
use node_proto::grant::{Grant, Owner, SignedGrant, Target};
use pg::{Actor, ActorKind, WriteTx};

use super::tasks::now;
use crate::Fleet;

#[derive(Clone, Debug)]
pub struct GrantRequest {
    pub node: NodeId,
    pub owner: Owner,
    pub target: Target,
    pub single_use: bool,
    /// From now on.
    pub good_for: TimeDelta,
}

impl Fleet {
    /// Only for a request of a user or a service account: what was read from the database or the bus opens nothing.
    pub async fn grant_sign(&self, tx: &WriteTx, request: GrantRequest) -> Result<SignedGrant, Failure> {
        let permit = tx.permit();
        let (now, actor) = (now(self), asker(&permit.actor())?);
        let grant = Grant {
            grant_id: self.db.ambient().id(),
            node_id: request.node,
            owner: request.owner,
            target: request.target,
            actor,
            single_use: request.single_use,
            issued_at: now,
            expires_at: now + request.good_for,
            correlation_id: permit.origin().correlation_id.0,
            signer_version: 0,
        };
        self.trust.sign_grant(grant).await
    }
}

fn asker(actor: &Actor) -> Result<String, Problem> {
    let refused = || {
        let text = "Streams to a node are granted only in a request of a user or a service account.";
        Problem::new(Code::InsufficientPermissions, text)
    };
    let id = actor.id.ok_or_else(refused)?;
    match actor.kind {
        ActorKind::User => Ok(UserId::from(id).to_string()),
        ActorKind::ServiceAccount => Ok(ServiceAccountId::from(id).to_string()),
        ActorKind::Node | ActorKind::System | ActorKind::Anonymous => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn only_users_and_service_accounts_are_granted_streams() {
        let actor = |kind, id| Actor { kind, id, role: "x" };
        let id = Some(Uuid::from_u128(7));
        assert!(asker(&actor(ActorKind::User, id)).unwrap().starts_with("user_"));
        assert!(asker(&actor(ActorKind::ServiceAccount, id)).unwrap().starts_with("sa_"));
        for refused in [
            actor(ActorKind::User, None),
            actor(ActorKind::Node, id),
            actor(ActorKind::System, id),
            actor(ActorKind::Anonymous, None),
        ] {
            let problem = asker(&refused).unwrap_err();
            assert_eq!(problem.code, Code::InsufficientPermissions, "{:?}", refused.kind);
        }
    }
}
