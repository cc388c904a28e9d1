//! Use cases: what is in force, and changing it.

mod authorities;
mod ensure;
mod handle;
mod signers;
pub(super) mod snapshot;

pub(crate) use handle::BACKDATED;

use kernel::{Code, CorrelationId, Problem};
use pg::{Origin, Permit};
use trust::signer::KeyCustody;

use super::{Signing, Trust};

impl Trust {
    fn custody(&self) -> Result<&dyn KeyCustody, Problem> {
        match &self.0.signing {
            Signing::Custody(custody) => Ok(&**custody),
            Signing::Checks(_) => {
                let text = "This process does not sign: it has no signing keys.";
                Err(Problem::new(Code::ServiceUnavailable, text))
            }
        }
    }

    fn system(&self, reason: &'static str) -> Permit {
        Permit::system(reason, Origin::internal(CorrelationId(self.0.db.ambient().uuid())))
    }
}

/// What the audit trail calls a thing that was changed for a stated reason.
fn target(id: impl std::fmt::Display, reason: &str) -> String {
    if reason.is_empty() { id.to_string() } else { format!("{id}: {reason}") }
}
