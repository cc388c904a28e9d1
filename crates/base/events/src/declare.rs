//! How the events of a domain are declared.

/// Each event as a type of its own: what it is called on the wire, what it means, what it holds. Makes `docs()` too, for
/// [`crate::published`].
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

        pub(crate) fn docs() -> Vec<$crate::EventDoc> {
            vec![$($crate::EventDoc::new::<$name>()),*]
        }
    };
}

pub(crate) use events;
