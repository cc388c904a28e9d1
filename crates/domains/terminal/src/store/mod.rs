//! SQL of the domain.

pub mod log_tokens;
pub mod lost_access;
pub mod recording_upkeep;
pub mod recordings;
pub mod sessions;
mod sign_in;
pub mod tokens;

use crate::model::token::TokenKind;

pg::named_columns! { TokenKind }
