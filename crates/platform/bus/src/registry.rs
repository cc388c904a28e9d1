//! Whether the consumers that a process knows are those that there are. Checked when it starts: a consumer that nobody
//! runs loses no message, but nothing happens either, and no log line says so.

use std::collections::BTreeSet;

use events::EventDoc;

use crate::Registration;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error("nobody registers the consumer {0}")]
    Missing(&'static str),
    #[error("two consumers are called {0}")]
    Duplicate(&'static str),
    #[error("the consumer {0} is not in the list of consumers")]
    Unknown(&'static str),
    #[error("the consumer {consumer} waits for {event_type}, which nobody publishes")]
    Unpublished { consumer: &'static str, event_type: String },
}

/// Each name of `expected` is registered exactly once, nothing else is, and somebody publishes what each waits for.
pub fn consumers_check(
    registered: &[Registration],
    expected: &[&'static str],
    published: &[EventDoc],
) -> Result<(), RegistryError> {
    let mut names = BTreeSet::new();
    for consumer in registered {
        let name = consumer.name();
        if !names.insert(name) {
            return Err(RegistryError::Duplicate(name));
        }
        if !expected.contains(&name) {
            return Err(RegistryError::Unknown(name));
        }
        let spec = consumer.spec();
        let is_published = |event_type: &&String| {
            published.iter().any(|doc| doc.event_type == **event_type && doc.stream.name() == spec.stream)
        };
        if let Some(event_type) = spec.event_types.iter().find(|event_type| !is_published(event_type)) {
            return Err(RegistryError::Unpublished { consumer: name, event_type: event_type.clone() });
        }
    }
    match expected.iter().find(|name| !names.contains(*name)) {
        Some(missing) => Err(RegistryError::Missing(missing)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use kernel::{Event, Stream, event::Envelope};
    use pg::WriteTx;

    use super::*;
    use crate::{ConsumeError, Consumer};

    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    struct Rung {}

    impl Event for Rung {
        const TYPE: &'static str = "storage.test.rung";
        const STREAM: Stream = Stream::Storage;
        const SUMMARY: &'static str = "A test rang.";
    }

    macro_rules! consumer {
        ($name:ident, $durable:literal) => {
            struct $name;

            #[async_trait]
            impl Consumer for $name {
                const NAME: &'static str = $durable;
                type Events = Rung;

                async fn handle(&self, _: &mut WriteTx, _: &Rung, _: &Envelope) -> Result<(), ConsumeError> {
                    Ok(())
                }
            }
        };
    }
    consumer!(Porter, "porter");
    consumer!(OtherPorter, "porter");
    consumer!(Butler, "butler");

    #[test]
    fn every_listed_consumer_is_registered_once_and_hears_what_somebody_says() {
        let (porter, butler) = (|| Registration::for_consumer(Porter), || Registration::for_consumer(Butler));
        let published = [EventDoc::new::<Rung>()];
        let both = ["porter", "butler"];
        let check = |registered: &[Registration]| consumers_check(registered, &both, &published);
        assert_eq!(check(&[porter(), butler()]), Ok(()));
        assert_eq!(check(&[porter()]), Err(RegistryError::Missing("butler")));
        let twice = [porter(), butler(), Registration::for_consumer(OtherPorter)];
        assert_eq!(check(&twice), Err(RegistryError::Duplicate("porter")));
        assert_eq!(
            consumers_check(&[porter(), butler()], &["porter"], &published),
            Err(RegistryError::Unknown("butler"))
        );
        let unpublished =
            RegistryError::Unpublished { consumer: "porter", event_type: Rung::TYPE.to_owned() };
        assert_eq!(consumers_check(&[porter(), butler()], &both, &[]), Err(unpublished));
    }
}
