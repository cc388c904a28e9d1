//! What an owner has on this machine, for whoever opens a way into it.

use std::sync::Arc;

use node_proto::{
    catalog::AccountSpec,
    grant::{Grant, Owner},
};
use node_tunnel::Refusal;

use crate::{
    config::Config,
    drivers::{
        Done,
        host::OwnerAccounts,
        hypervisor::{FileLeases, Leases},
    },
};

/// Nothing on this node is the owner's.
pub const NO_SUCH_OWNER: Refusal = Refusal("no_such_owner");
/// There is something of the owner's, and no such way into it yet.
pub const NOT_SUPPORTED: Refusal = Refusal("not_supported");
/// Whose account it is cannot be read now.
pub const UNAVAILABLE: Refusal = Refusal("unavailable");

/// Accounts and slices of a real machine. Cheap to clone.
#[derive(Clone)]
pub struct MachineOwners(Arc<Inner>);

struct Inner {
    accounts: OwnerAccounts,
    leases: FileLeases,
}

enum Found {
    Account(AccountSpec),
    Slice,
    Nothing,
}

impl MachineOwners {
    pub fn new(config: &Config) -> Self {
        Self(Arc::new(Inner {
            accounts: OwnerAccounts::new(&config.roots, &config.state_dir),
            leases: FileLeases::new(&config.state_dir),
        }))
    }

    /// The account of the allocation that a grant is for.
    pub async fn account(&self, grant: &Grant) -> Result<AccountSpec, Refusal> {
        let Owner::Allocation { allocation_id } = grant.owner else { return Err(NOT_SUPPORTED) };
        let (inner, owner) = (self.0.clone(), allocation_id.to_string());
        // Files are read.
        let found = tokio::task::spawn_blocking(move || {
            inner.find(&owner).map_err(|error| {
                tracing::error!(owner, %error, "the owner of a stream cannot be looked up");
                UNAVAILABLE
            })
        });
        match found.await.unwrap_or(Err(UNAVAILABLE))? {
            Found::Account(account) => Ok(account),
            Found::Slice => Err(NOT_SUPPORTED),
            Found::Nothing => Err(NO_SUCH_OWNER),
        }
    }
}

impl Inner {
    fn find(&self, owner: &str) -> Done<Found> {
        if let Some(account) = self.accounts.find(owner)? {
            return Ok(Found::Account(account));
        }
        let is_slice = self.leases.all()?.iter().any(|lease| lease.wanted.owner == owner);
        Ok(if is_slice { Found::Slice } else { Found::Nothing })
    }
}
