//! The list of signers: what the next one says, given the one in force.
//!
//! The next list is always made from a list whose signature was checked, never from the rows that show the
//! signers: whoever can write rows cannot bring a key in by waiting for the next rotation.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use kernel::{Code, Problem};
use lifecycle::{Lifecycle as _, Named as _};
use node_proto::{Keyset, SignerKey, SignerState as Listed, text::Base64};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    not_from,
    signer::{SignerEvent, SignerLifecycle, SignerState},
};

/// The list in force, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "SignerKeyset")]
pub struct KeysetView {
    pub keyset: Keyset,
    /// What nodes are given.
    pub signed: node_proto::SignedKeyset,
    /// The key that signs the list, in hexadecimal: what nodes pin when they join.
    pub keyset_key: String,
}

/// What an operator wants of a signer.
#[derive(Clone, Debug)]
pub enum Change {
    Stage {
        signer_version: u32,
        public_key: Vec<u8>,
    },
    Activate(u32),
    Retire(u32),
    /// The staged signer takes the place of the active one.
    Revoke(u32),
}

/// One signer's step.
pub type Move = (u32, SignerEvent);

impl Change {
    /// The steps that it takes, in an order in which at most one signer is active at any time.
    pub fn moves(&self, current: &Keyset) -> Result<Vec<Move>, Problem> {
        let in_state =
            |wanted| current.signers.iter().find(|key| key.state == wanted).map(|k| k.signer_version);
        match self {
            Self::Stage { .. } if in_state(Listed::Staged).is_some() => {
                Err(Problem::new(Code::AlreadyExists, "A signer is already staged.")
                    .suggest("Activate or revoke the staged signer first."))
            }
            Self::Stage { .. } => Ok(Vec::new()),
            Self::Activate(version) => {
                expect(current, *version, SignerEvent::Activate)?;
                let old = in_state(Listed::Active).map(|old| (old, SignerEvent::Supersede));
                Ok(old.into_iter().chain([(*version, SignerEvent::Activate)]).collect())
            }
            Self::Retire(version) => {
                expect(current, *version, SignerEvent::Retire)?;
                Ok(vec![(*version, SignerEvent::Retire)])
            }
            Self::Revoke(version) => {
                let state = expect(current, *version, SignerEvent::Revoke)?;
                let mut moves = vec![(*version, SignerEvent::Revoke)];
                if state == SignerState::Active {
                    let heir = in_state(Listed::Staged).ok_or_else(|| {
                        Problem::new(
                            Code::InvalidTransition,
                            "Without the active signer, no task could be signed.",
                        )
                        .suggest("Stage a signer first; it becomes active when this one is revoked.")
                    })?;
                    moves.push((heir, SignerEvent::Activate));
                }
                Ok(moves)
            }
        }
    }

    /// The list after it.
    pub fn next(
        &self,
        current: &Keyset,
        serial: u64,
        issued_at: DateTime<Utc>,
    ) -> Result<(Keyset, Vec<Move>), Problem> {
        let moves = self.moves(current)?;
        let mut signers = current.signers.clone();
        for (version, event) in &moves {
            let Some(at) = signers.iter().position(|key| key.signer_version == *version) else { continue };
            let state = SignerLifecycle::next(state_of(signers[at].state), *event);
            match state.and_then(listed) {
                Some(state) => signers[at].state = state,
                // Whoever is not in the list is not believed.
                None => drop(signers.remove(at)),
            }
        }
        if let Self::Stage { signer_version, public_key } = self {
            signers.push(staged(*signer_version, public_key, Listed::Staged));
        }
        signers.sort_by_key(|key| key.signer_version);
        Ok((Keyset { serial, issued_at, signers }, moves))
    }
}

/// The first list, with one signer in use.
pub fn first(serial: u64, issued_at: DateTime<Utc>, signer_version: u32, public_key: &[u8]) -> Keyset {
    Keyset { serial, issued_at, signers: vec![staged(signer_version, public_key, Listed::Active)] }
}

pub fn active(keyset: &Keyset) -> Option<u32> {
    keyset.signers.iter().find(|key| key.state == Listed::Active).map(|key| key.signer_version)
}

pub fn find(keyset: &Keyset, signer_version: u32) -> Option<&SignerKey> {
    keyset.signers.iter().find(|key| key.signer_version == signer_version)
}

pub const fn state_of(listed: Listed) -> SignerState {
    match listed {
        Listed::Staged => SignerState::Staged,
        Listed::Active => SignerState::Active,
        Listed::Grace => SignerState::Grace,
    }
}

const fn listed(state: SignerState) -> Option<Listed> {
    match state {
        SignerState::Staged => Some(Listed::Staged),
        SignerState::Active => Some(Listed::Active),
        SignerState::Grace => Some(Listed::Grace),
        SignerState::Retired | SignerState::Revoked => None,
    }
}

/// The serial of the list that each signer's present state began with, out of checked lists, oldest first.
/// For one that has left, the first list without it.
pub fn since(history: &[Keyset]) -> BTreeMap<u32, u64> {
    let mut since = BTreeMap::new();
    let mut before: Option<&Keyset> = None;
    for keyset in history {
        let known =
            before.into_iter().chain([keyset]).flat_map(|k| k.signers.iter().map(|s| s.signer_version));
        for version in known {
            let state = |k: &Keyset| find(k, version).map(|key| key.state);
            // Of the oldest list it is not known what was before; it began then at the latest.
            if before.is_none_or(|before| state(before) != state(keyset)) {
                since.insert(version, keyset.serial);
            }
        }
        before = Some(keyset);
    }
    since
}

fn staged(signer_version: u32, public_key: &[u8], state: Listed) -> SignerKey {
    SignerKey { signer_version, state, public_key: Base64(public_key.to_vec()) }
}

fn expect(current: &Keyset, version: u32, event: SignerEvent) -> Result<SignerState, Problem> {
    let state = find(current, version).map(|key| state_of(key.state));
    let Some(state) = state else {
        return Err(Problem::new(Code::InvalidTransition, "The signer is not in the keyset.")
            .detail("signer_version", version));
    };
    match SignerLifecycle::next(state, event) {
        Some(_) => Ok(state),
        None => Err(not_from("signer", state.name(), event.name())),
    }
}

#[cfg(test)]
#[path = "keyset_tests.rs"]
mod tests;
