//! Somebody may no longer log in, or a machine can be reached again that has to learn it.

use async_trait::async_trait;
use bus::{ConsumeError, ConsumerPolicy, Reconciler};
use events::{
    ConsumerName,
    fleet::NodeRecovered,
    identity::{
        AccountDisabled, MemberRemoved, MemberRoleChanged, ProjectMemberRemoved, ServiceAccountChanged,
        ServiceAccountDeleted, SshKeyDeleted,
    },
};
use kernel::event::Envelope;

use super::{envelope_origin, reconciler_policy};
use crate::{Capacity, model::access::MachinesOf, service::key_removal::keys_remove};

events::event_set! {
    /// Somebody left, lost a role, deleted a key, or was disabled; a service account was changed or deleted.
    pub AccessLost {
        MemberRemoved, MemberRoleChanged, ProjectMemberRemoved, SshKeyDeleted, AccountDisabled, ServiceAccountChanged,
        ServiceAccountDeleted
    }
}

impl AccessLost {
    fn machines(&self) -> MachinesOf {
        let person = MachinesOf::Person;
        match self {
            Self::MemberRemoved(event) => person(event.user_id),
            Self::MemberRoleChanged(event) => person(event.user_id),
            Self::ProjectMemberRemoved(event) => person(event.user_id),
            Self::SshKeyDeleted(event) => person(event.user_id),
            Self::AccountDisabled(event) => person(event.user_id),
            Self::ServiceAccountChanged(event) => MachinesOf::ServiceAccount(event.service_account_id),
            Self::ServiceAccountDeleted(event) => MachinesOf::ServiceAccount(event.service_account_id),
        }
    }
}

/// Takes keys off the machines that somebody may no longer use.
pub struct AccessLostConsumer(pub Capacity);

#[async_trait]
impl Reconciler for AccessLostConsumer {
    const NAME: &'static str = ConsumerName::AccessLost.name();
    type Events = AccessLost;
    const AUDIT_ACTION: &'static str = "allocation.access_lost_handled";
    const REASON: &'static str = "somebody may no longer log in to machines";

    fn policy(&self) -> ConsumerPolicy {
        reconciler_policy()
    }

    async fn reconcile(&self, event: &AccessLost, envelope: &Envelope) -> Result<(), ConsumeError> {
        keys_remove(&self.0, event.machines(), &envelope_origin(envelope)).await?;
        Ok(())
    }
}

/// A node is back.
pub struct NodeBackConsumer(pub Capacity);

#[async_trait]
impl Reconciler for NodeBackConsumer {
    const NAME: &'static str = ConsumerName::NodeBack.name();
    type Events = NodeRecovered;
    const AUDIT_ACTION: &'static str = "allocation.node_back_handled";
    const REASON: &'static str = "a node can be reached again";

    fn policy(&self) -> ConsumerPolicy {
        reconciler_policy()
    }

    async fn reconcile(&self, event: &NodeRecovered, envelope: &Envelope) -> Result<(), ConsumeError> {
        keys_remove(&self.0, MachinesOf::Node(event.node_id), &envelope_origin(envelope)).await?;
        Ok(())
    }
}
