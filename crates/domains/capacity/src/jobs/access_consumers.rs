//! Somebody may no longer log in, or a machine can be reached again that has to learn it.

use std::time::Duration;

use async_trait::async_trait;
use bus::{ConsumeError, ConsumerPolicy, Reconciler, decode};
use fleet::api::events::NodeRecovered;
use identity::api::events::{
    AccountDisabled, MemberRemoved, MemberRoleChanged, ProjectMemberRemoved, SshKeyDeleted,
};
use kernel::{CorrelationId, Event as _, Stream, event::Envelope, ids::UserId};
use pg::Origin;
use serde::Deserialize;

use crate::{Capacity, model::access::MachinesOf, service::key_removal::keys_remove};

/// A removal has many transactions: few at once.
fn policy() -> ConsumerPolicy {
    ConsumerPolicy { concurrency: 2, handler_timeout: Duration::from_secs(90), ..ConsumerPolicy::default() }
}

fn origin(envelope: &Envelope) -> Origin {
    Origin {
        correlation_id: CorrelationId(envelope.correlation_id),
        source_ip: None,
        traceparent: envelope.traceparent.clone(),
    }
}

/// What every event below says.
#[derive(Deserialize)]
struct About {
    user_id: UserId,
}

/// Somebody left, lost a role, deleted a key, or was disabled.
pub struct AccessLostConsumer(pub Capacity);

#[async_trait]
impl Reconciler for AccessLostConsumer {
    const NAME: &'static str = "capacity-access-lost";
    const STREAM: Stream = Stream::Identity;
    const EVENT_TYPES: &'static [&'static str] = &[
        MemberRemoved::TYPE,
        MemberRoleChanged::TYPE,
        ProjectMemberRemoved::TYPE,
        SshKeyDeleted::TYPE,
        AccountDisabled::TYPE,
    ];
    const AUDIT_ACTION: &'static str = "allocation.access_lost_handled";
    const REASON: &'static str = "somebody may no longer log in to machines";

    fn policy(&self) -> ConsumerPolicy {
        policy()
    }

    async fn reconcile(&self, envelope: &Envelope) -> Result<(), ConsumeError> {
        let About { user_id } = decode(envelope)?;
        keys_remove(&self.0, MachinesOf::Person(user_id), &origin(envelope)).await?;
        Ok(())
    }
}

/// A node is back.
pub struct NodeBackConsumer(pub Capacity);

#[async_trait]
impl Reconciler for NodeBackConsumer {
    const NAME: &'static str = "capacity-node-back";
    const STREAM: Stream = Stream::Nodes;
    const EVENT_TYPES: &'static [&'static str] = &[NodeRecovered::TYPE];
    const AUDIT_ACTION: &'static str = "allocation.node_back_handled";
    const REASON: &'static str = "a node can be reached again";

    fn policy(&self) -> ConsumerPolicy {
        policy()
    }

    async fn reconcile(&self, envelope: &Envelope) -> Result<(), ConsumeError> {
        let event: NodeRecovered = decode(envelope)?;
        keys_remove(&self.0, MachinesOf::Node(event.node_id), &origin(envelope)).await?;
        Ok(())
    }
}
