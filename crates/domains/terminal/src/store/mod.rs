//! SQL of the domain.

pub mod log_tokens;
pub mod recording_upkeep;
pub mod recordings;
pub mod sessions;
pub mod tokens;

use crate::model::token::TokenKind;

pg::named_columns! { TokenKind }
