//! Which consumers of events there are, and which role runs each.

use bus::{Bus, Registration, RegistryError, consumers_check};
use events::ConsumerName;
use lifecycle::Named as _;

use crate::{restore::NormalMode, roles::Role};

/// The role that runs a consumer. One that queues tasks belongs to a role that signs them.
const fn consumer_role(consumer: ConsumerName) -> Role {
    match consumer {
        ConsumerName::InvitationCloser => Role::OutboxRelay,
        ConsumerName::Onboarding
        | ConsumerName::Groups
        | ConsumerName::Depletion
        | ConsumerName::Budgets
        | ConsumerName::SpendCaps
        | ConsumerName::Faults
        | ConsumerName::Active
        | ConsumerName::AccessLost
        | ConsumerName::NodeBack => Role::ProvisioningWorker,
        ConsumerName::BillingNotices
        | ConsumerName::PaymentNotices
        | ConsumerName::ProvisioningNotices
        | ConsumerName::NodeNotices
        | ConsumerName::InvitationMails => Role::NotificationRelay,
    }
}

/// Every consumer of the product, whatever the roles of this process.
pub struct Consumers(Vec<(Role, Registration)>);

impl Consumers {
    /// Refuses a list that lacks a consumer, has one twice, or has one that waits for what nobody publishes.
    pub fn new(registered: Vec<Registration>) -> Result<Self, RegistryError> {
        consumers_check(&registered, ConsumerName::NAMES, &events::published())?;
        let with_role = |consumer: Registration| {
            let name: ConsumerName =
                consumer.name().parse().map_err(|_| RegistryError::Unknown(consumer.name()))?;
            Ok((consumer_role(name), consumer))
        };
        Ok(Self(registered.into_iter().map(with_role).collect::<Result<_, RegistryError>>()?))
    }

    /// Runs those of `roles`.
    pub fn start(&self, roles: &[Role], bus: &Bus, mode: &NormalMode<'_>) {
        let NormalMode { tasks, cancel, .. } = *mode;
        for (_, consumer) in self.0.iter().filter(|(role, _)| roles.contains(role)) {
            tasks.spawn(bus.runner(consumer.clone()).run(cancel.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is a failed test")]
    use kernel::event::Envelope;
    use serde_json::{Value, json};
    use testkit::{Fields, event_sample};
    use uuid::Uuid;

    use super::*;
    use crate::{compose::install_crypto_provider, documents};

    fn registered() -> Vec<Registration> {
        install_crypto_provider();
        documents::detached().unwrap().registrations()
    }

    #[tokio::test]
    async fn the_server_does_not_start_without_every_consumer_exactly_once() {
        let all = registered();
        assert!(Consumers::new(all.clone()).is_ok());
        for left_out in 0..all.len() {
            let mut some = all.clone();
            let missing = some.remove(left_out).name();
            assert_eq!(Consumers::new(some).err(), Some(RegistryError::Missing(missing)));
        }
        let twice: Vec<_> = all.iter().chain(all.first()).cloned().collect();
        assert_eq!(Consumers::new(twice).err(), Some(RegistryError::Duplicate(all[0].name())));
    }

    #[tokio::test]
    async fn every_role_together_runs_every_consumer() {
        let consumers = Consumers::new(registered()).unwrap();
        assert_eq!(consumers.0.len(), ConsumerName::ALL.len());
        assert!(consumers.0.iter().all(|(role, _)| Role::ALL.contains(role)));
        let queueing = |name: &str| name.starts_with("fleet-") || name.starts_with("capacity-");
        assert!(consumers.0.iter().all(|(role, consumer)| role.signs() == queueing(consumer.name())));
    }

    /// The document is what publishers promise; each consumer must be able to read a payload made from it alone.
    #[tokio::test]
    async fn consumers_read_what_the_document_of_events_promises() {
        let document: Value = serde_json::from_str(include_str!("../../../../openapi/events.json")).unwrap();
        for consumer in registered() {
            let spec = consumer.spec();
            assert!(!spec.event_types.is_empty(), "{}", spec.name);
            for event_type in &spec.event_types {
                let messages = &document["channels"][&spec.stream]["messages"];
                assert!(
                    messages.get(format!("{event_type}.v1")).is_some(),
                    "{event_type} is not in the document"
                );
                let payload = event_sample(&document, event_type, Fields::Required);
                let envelope = Envelope {
                    event_id: Uuid::from_u128(1),
                    event_type: event_type.clone(),
                    version: 1,
                    occurred_at: chrono::DateTime::UNIX_EPOCH,
                    correlation_id: Uuid::from_u128(2),
                    traceparent: None,
                    org_id: None,
                    project_id: None,
                    payload,
                };
                assert!(consumer.can_read(&envelope).unwrap(), "{} of {event_type}", spec.name);
                let unreadable = Envelope { payload: json!([]), ..envelope };
                assert!(consumer.can_read(&unreadable).is_err(), "{} of {event_type}", spec.name);
            }
        }
    }
}
