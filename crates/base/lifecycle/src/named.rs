//! Enumerations whose values have stable names in the database and on the wire.

use std::{fmt, marker::PhantomData};

use schemars::{Schema, json_schema};
use serde::de::{Deserializer, Error, Visitor};

/// A value that has a stable name in the database and on the wire.
pub trait Named: Copy + PartialEq + 'static {
    /// What has these names, as messages call it: `door state`.
    const KIND: &'static str;
    const NAMES: &'static [&'static str];
    /// In the order of `NAMES`.
    const VALUES: &'static [Self];
    fn name(self) -> &'static str;
}

/// A text, mostly from a row, that names no value of the enumeration it should belong to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {kind} named {name}")]
pub struct UnknownName {
    pub kind: &'static str,
    pub name: String,
}

pub fn name_parse<T: Named>(name: &str) -> Result<T, UnknownName> {
    let known = T::VALUES.iter().copied().find(|value| value.name() == name);
    known.ok_or_else(|| UnknownName { kind: T::KIND, name: name.to_owned() })
}

pub fn name_deserialize<'de, T: Named, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Name<T>(PhantomData<T>);

    impl<T: Named> Visitor<'_> for Name<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "one of {}", T::NAMES.join(", "))
        }

        fn visit_str<E: Error>(self, name: &str) -> Result<T, E> {
            name_parse(name).map_err(|_| E::unknown_variant(name, T::NAMES))
        }
    }

    deserializer.deserialize_str(Name(PhantomData))
}

/// A text that is one of the names; the description has the lines of a comment.
pub fn name_schema<T: Named>(description: &str) -> Schema {
    let mut schema = json_schema!({ "type": "string", "enum": T::NAMES });
    let description: Vec<_> = description.lines().map(str::trim).collect();
    if !description.is_empty() {
        schema.insert("description".to_owned(), description.join("\n").into());
    }
    schema
}

/// Declares a kind that has no lifecycle: a public enum whose values have stable names. A comment above the enum is
/// its description in documents, where it has the name of the enum, or the one after `as`.
///
/// ```
/// lifecycle::named_enum! {
///     /// How a door is locked.
///     #[derive(Default)]
///     Lock = "lock" {
///         #[default]
///         Bolt = "bolt",
///         /// Opens from inside without a key.
///         Latch = "latch",
///     }
/// }
/// assert_eq!("latch".parse(), Ok(Lock::Latch));
/// assert_eq!(Lock::ALL.map(Lock::name), ["bolt", "latch"]);
/// ```
#[macro_export]
macro_rules! named_enum {
    (
        $(#[doc = $doc:literal])* $(#[derive($more:ident)])? $name:ident = $kind:literal $(as $schema:literal)? {
            $($(#[$value_attribute:meta])* $value:ident = $text:literal),* $(,)?
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $(#[derive($more)])?
        pub enum $name { $($(#[$value_attribute])* $value),* }
        $crate::names! { $name, $kind, $($value = $text),* }
        $crate::wire_names! { $name, concat!($($doc, "\n",)* "") $(, $schema)? }
        impl $name {
            pub const ALL: [Self; <Self as $crate::Named>::NAMES.len()] = [$(Self::$value),*];
            pub const fn name(self) -> &'static str { match self { $(Self::$value => $text),* } }
        }
    };
}

/// Lets text columns be read as these enumerations: `SELECT state AS "state: InvitationState"`. A row with a name that
/// this version of the program does not know is an error of the query that read it. They are bound by name. The crate that
/// uses this depends on `sqlx`.
#[macro_export]
macro_rules! named_columns {
    ($($name:ty),* $(,)?) => { $(
        impl ::sqlx::Type<::sqlx::Postgres> for $name {
            fn type_info() -> ::sqlx::postgres::PgTypeInfo {
                <str as ::sqlx::Type<::sqlx::Postgres>>::type_info()
            }
            fn compatible(column: &::sqlx::postgres::PgTypeInfo) -> bool {
                <str as ::sqlx::Type<::sqlx::Postgres>>::compatible(column)
            }
        }
        impl<'r> ::sqlx::Decode<'r, ::sqlx::Postgres> for $name {
            fn decode(value: ::sqlx::postgres::PgValueRef<'r>) -> Result<Self, ::sqlx::error::BoxDynError> {
                Ok(<&str as ::sqlx::Decode<::sqlx::Postgres>>::decode(value)?.parse::<Self>()?)
            }
        }
    )* };
}

/// Its names, for the macros that declare an enumeration.
#[doc(hidden)]
#[macro_export]
macro_rules! names {
    ($name:ident, $kind:expr, $($value:ident = $text:literal),*) => {
        impl $crate::Named for $name {
            const KIND: &'static str = $kind;
            const NAMES: &'static [&'static str] = &[$($text),*];
            const VALUES: &'static [Self] = &[$(Self::$value),*];
            fn name(self) -> &'static str { match self { $(Self::$value => $text),* } }
        }
    };
}

/// How it is written and read, for the macros that declare an enumeration.
#[doc(hidden)]
#[macro_export]
macro_rules! wire_names {
    ($name:ident, $description:expr, $schema:expr) => {
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad($crate::Named::name(*self))
            }
        }
        impl ::std::str::FromStr for $name {
            type Err = $crate::UnknownName;
            fn from_str(name: &str) -> Result<Self, $crate::UnknownName> {
                $crate::name_parse(name)
            }
        }
        impl $crate::serde::Serialize for $name {
            fn serialize<S: $crate::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($crate::Named::name(*self))
            }
        }
        impl<'de> $crate::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::name_deserialize(deserializer)
            }
        }
        impl $crate::schemars::JsonSchema for $name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                ::std::borrow::Cow::Borrowed($schema)
            }
            fn schema_id() -> ::std::borrow::Cow<'static, str> {
                ::std::borrow::Cow::Borrowed(concat!(module_path!(), "::", stringify!($name)))
            }
            fn json_schema(_: &mut $crate::schemars::SchemaGenerator) -> $crate::schemars::Schema {
                $crate::name_schema::<Self>($description)
            }
        }
    };
    ($name:ident, $description:expr) => {
        $crate::wire_names! { $name, $description, stringify!($name) }
    };
}

#[cfg(test)]
mod tests {
    named_enum! {
        /// How a door is locked,
        /// if it is.
        Lock = "lock" as "DoorLock" {
            Bolt = "bolt",
            /// Opens from inside without a key.
            Latch = "latch",
        }
    }

    #[derive(serde::Serialize, schemars::JsonSchema)]
    struct Door {
        lock: Lock,
    }

    #[test]
    fn a_kind_is_described_by_its_comment() {
        let schema = schemars::schema_for!(Lock);
        assert_eq!(schema.get("description"), Some(&"How a door is locked,\nif it is.".into()));
        assert_eq!(schema.get("enum"), Some(&serde_json::json!(["bolt", "latch"])));
    }

    #[test]
    fn what_is_no_name_is_refused_with_the_names_that_there_are() {
        let refused = serde_json::from_str::<Lock>("7").unwrap_err().to_string();
        assert!(refused.contains("expected one of bolt, latch"), "{refused}");
        assert_eq!(format!("{:>6}|", Lock::Bolt), "  bolt|");
        assert!(crate::name_schema::<Lock>("").get("description").is_none());
    }

    #[test]
    fn a_named_schema_is_referred_to() {
        let schema = schemars::schema_for!(Door);
        assert_eq!(schema.pointer("/properties/lock/$ref"), Some(&"#/$defs/DoorLock".into()));
    }

    #[test]
    fn values_are_ordered_as_they_are_declared() {
        assert_eq!(Lock::ALL.map(Lock::name), ["bolt", "latch"]);
        assert!(Lock::Bolt < Lock::Latch);
        assert_eq!(
            serde_json::to_value(Door { lock: Lock::Latch }).unwrap(),
            serde_json::json!({ "lock": "latch" })
        );
    }
}
