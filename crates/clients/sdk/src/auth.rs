//! Where bearer tokens come from.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;

use crate::Error;

/// Gives the token for the next request. It is asked before every request, so it may renew what has
/// expired; it must bound its own waits.
pub trait TokenSource: Send + Sync {
    /// `None` sends the request without a token.
    fn token(&self) -> BoxFuture<'_, Result<Option<String>, Error>>;
}

/// A token that somebody else keeps fresh.
pub struct FixedToken(String);

impl FixedToken {
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }
}

impl TokenSource for FixedToken {
    fn token(&self) -> BoxFuture<'_, Result<Option<String>, Error>> {
        Box::pin(async { Ok(Some(self.0.clone())) })
    }
}

/// For what is open to everybody.
pub struct Anonymous;

impl TokenSource for Anonymous {
    fn token(&self) -> BoxFuture<'_, Result<Option<String>, Error>> {
        Box::pin(async { Ok(None) })
    }
}

/// A shared source that does not show what it holds.
#[derive(Clone)]
pub(crate) struct Tokens(pub Arc<dyn TokenSource>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[tokens]")
    }
}
