//! How a token request fails: refused in the words of OAuth 2, or not answered because something broke.

use kernel::Failure;

use super::model::Refusal;

/// How a token request fails.
#[derive(Debug)]
pub enum TokenError {
    Refused(Refusal),
    Failed(Failure),
}

impl From<Refusal> for TokenError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Failure> for TokenError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

macro_rules! internal {
    ($($error:ty),*) => {$(
        impl From<$error> for TokenError {
            fn from(error: $error) -> Self {
                Self::Failed(error.into())
            }
        }
    )*};
}
internal!(sqlx::Error, pg::Error, serde_json::Error);
