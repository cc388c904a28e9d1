//! Columns that hold the name of a state or a kind.

/// Lets text columns be read as these enumerations: `SELECT state AS "state: InvitationState"`. A row with a name that
/// this version of the program does not know is an error of the query that read it. They are bound by name.
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
