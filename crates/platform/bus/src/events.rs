//! Declares the events of a domain.

/// Each event as a type of its own: what it is called on the wire, what it means, what it holds. Makes `docs()` too,
/// which shows them all to the document of events.
///
/// ```
/// bus::events! { Billing;
///     Paid = "billing.paid", "Somebody paid." { amount_minor: i64 }
/// }
/// assert_eq!(docs()[0].event_type, "billing.paid");
/// ```
#[macro_export]
macro_rules! events {
    ($stream:ident; $($name:ident = $type:literal, $summary:literal { $($field:ident: $kind:ty),* $(,)? })*) => {
        $(
            #[doc = $summary]
            #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
            pub struct $name { $(pub $field: $kind),* }
            impl ::kernel::Event for $name {
                const TYPE: &'static str = $type;
                const STREAM: ::kernel::Stream = ::kernel::Stream::$stream;
                const SUMMARY: &'static str = $summary;
            }
        )*

        /// Every event as the document of events shows it.
        pub fn docs() -> Vec<$crate::asyncapi::EventDoc> {
            vec![$($crate::asyncapi::EventDoc::of::<$name>()),*]
        }
    };
}
