//! The authorities and signers that all trust in the fleet rests on.

use node_proto::{Keyset, SignedKeyset, SignedTask, Task};

/// The trust in force, for whoever issues, signs or checks. Cheap to clone.
#[derive(Clone)]
pub struct Trust {}

impl Trust {
    /// Signs with the active signer. `task.signer_version` is set here.
    pub async fn sign_task(&self, _task: Task) -> Result<SignedTask, kernel::Failure> {
        Err(kernel::Problem::of(kernel::Code::ServiceUnavailable).into())
    }

    /// What a joining node pins: the SHA-256 of each root in force, and the public key that signs the list of
    /// signers, all in hex.
    pub async fn pins(&self) -> Result<(Vec<String>, String), kernel::Failure> {
        Err(kernel::Problem::of(kernel::Code::ServiceUnavailable).into())
    }

    /// The list of signers in force, checked against the pinned key.
    pub async fn keyset(&self) -> Result<(Keyset, SignedKeyset), kernel::Failure> {
        Err(kernel::Problem::of(kernel::Code::ServiceUnavailable).into())
    }
}
