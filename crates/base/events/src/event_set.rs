//! What a consumer takes: one type of event, or several of one stream.

use kernel::{Event, Stream, event::Envelope};
use serde::de::DeserializeOwned;

/// One event type is a set by itself; several are an enum that [`event_set!`](crate::event_set) declares.
pub trait EventSet: Sized + Send + Sync + 'static {
    const STREAM: Stream;
    /// The names on the wire, in the order of the declaration.
    const TYPES: &'static [&'static str];

    /// The event as its type, or nothing when it is none of the set: a consumer that takes fewer types than in the
    /// release before may still find the others in its queue.
    fn decode(envelope: &Envelope) -> Result<Option<Self>, serde_json::Error>;
}

impl<E: Event + DeserializeOwned + Send + Sync + 'static> EventSet for E {
    const STREAM: Stream = E::STREAM;
    const TYPES: &'static [&'static str] = &[E::TYPE];

    fn decode(envelope: &Envelope) -> Result<Option<Self>, serde_json::Error> {
        if envelope.event_type == E::TYPE { E::deserialize(&envelope.payload).map(Some) } else { Ok(None) }
    }
}

/// Declares an enum of event types, each variant called like its type. All belong to one stream, or it does not compile.
///
/// ```
/// use events::fleet::{NodeOffline, NodeRecovered};
///
/// events::event_set! {
///     /// Whether a node can be reached.
///     pub Reachability { NodeOffline, NodeRecovered }
/// }
/// assert_eq!(<Reachability as events::EventSet>::TYPES.len(), 2);
/// ```
///
/// ```compile_fail
/// use events::{billing::BalanceDepleted, fleet::NodeOffline};
///
/// events::event_set! { pub TwoStreams { NodeOffline, BalanceDepleted } }
/// ```
#[macro_export]
macro_rules! event_set {
    ($(#[$doc:meta])* $vis:vis $set:ident { $first:ident $(, $event:ident)* $(,)? }) => {
        $(#[$doc])*
        // A variant has the name of its event, whatever the others are called.
        #[allow(clippy::enum_variant_names)]
        #[derive(Clone, Debug, PartialEq)]
        $vis enum $set { $first($first) $(, $event($event))* }

        $(const _: () = assert!(
            <$event as $crate::kernel::Event>::STREAM as u8 == <$first as $crate::kernel::Event>::STREAM as u8,
            "a consumer follows one stream"
        );)*

        impl $crate::EventSet for $set {
            const STREAM: $crate::kernel::Stream = <$first as $crate::kernel::Event>::STREAM;
            const TYPES: &'static [&'static str] =
                &[<$first as $crate::kernel::Event>::TYPE $(, <$event as $crate::kernel::Event>::TYPE)*];

            fn decode(
                envelope: &$crate::kernel::event::Envelope,
            ) -> Result<Option<Self>, $crate::serde_json::Error> {
                use $crate::serde::Deserialize as _;
                let payload = &envelope.payload;
                match envelope.event_type.as_str() {
                    <$first as $crate::kernel::Event>::TYPE => {
                        Ok(Some(Self::$first($first::deserialize(payload)?)))
                    }
                    $(<$event as $crate::kernel::Event>::TYPE => {
                        Ok(Some(Self::$event($event::deserialize(payload)?)))
                    })*
                    _ => Ok(None),
                }
            }
        }
    };
}
