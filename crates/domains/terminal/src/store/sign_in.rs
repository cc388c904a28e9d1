//! What somebody was signed in with, as two columns of which one is set.

use endpoint::SignIn;
use uuid::Uuid;

/// The columns `account_session_id` and `service_account_key_id`.
pub fn columns(sign_in: SignIn) -> (Option<Uuid>, Option<Uuid>) {
    match sign_in {
        SignIn::User { session } => (Some(session.uuid()), None),
        SignIn::ServiceAccount { key } => (None, Some(key.uuid())),
    }
}

/// `None` when neither is set, which a constraint of the table forbids.
pub fn from_columns(account_session: Option<Uuid>, service_account_key: Option<Uuid>) -> Option<SignIn> {
    match (account_session, service_account_key) {
        (Some(session), _) => Some(SignIn::User { session: session.into() }),
        (None, key) => key.map(|key| SignIn::ServiceAccount { key: key.into() }),
    }
}
