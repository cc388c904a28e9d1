//! A right to attach once: random, and known to the database by its hash only.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use kernel::{Ambient, Secret, digest::sha256, ids::TerminalSessionId};
use node_proto::grant::SignedGrant;
use trust::{SealError, Sealer};

/// So that a leaked one is recognised.
const PREFIX: &str = "gpterm_";
const PURPOSE: &[u8] = b"terminal grant";
const BOUND_TO: &str = "terminal grant";

lifecycle::named_enum! {
    /// Which WebSocket takes a token.
    TokenKind = "kind of token" {
        Terminal = "terminal",
        Ssh = "ssh",
    }
}

/// What a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Terminal { session_id: TerminalSessionId },
    Ssh,
}

impl Purpose {
    /// `None` when a kind has a session that has none, or none that needs one.
    pub const fn new(kind: TokenKind, session: Option<TerminalSessionId>) -> Option<Self> {
        match (kind, session) {
            (TokenKind::Terminal, Some(session_id)) => Some(Self::Terminal { session_id }),
            (TokenKind::Ssh, None) => Some(Self::Ssh),
            (TokenKind::Terminal, None) | (TokenKind::Ssh, Some(_)) => None,
        }
    }

    pub const fn kind(self) -> TokenKind {
        match self {
            Self::Terminal { .. } => TokenKind::Terminal,
            Self::Ssh => TokenKind::Ssh,
        }
    }

    pub const fn session(self) -> Option<TerminalSessionId> {
        match self {
            Self::Terminal { session_id } => Some(session_id),
            Self::Ssh => None,
        }
    }
}

/// A right to connect once.
pub struct TerminalToken(Secret<[u8; 32]>);

impl TerminalToken {
    pub fn random(ambient: &Ambient) -> Self {
        Self(Secret::new(ambient.bytes()))
    }

    pub fn parse(text: &str) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?;
        Some(Self(Secret::new(bytes.try_into().ok()?)))
    }

    /// As its owner gets it.
    pub fn text(&self) -> Secret<String> {
        Secret::new(format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(self.0.expose())))
    }

    pub fn hash(&self) -> [u8; 32] {
        sha256(self.0.expose())
    }

    pub(super) fn sealer(&self) -> Result<Sealer, SealError> {
        Sealer::for_purpose(&self.0, PURPOSE)
    }

    /// The grant, for whoever has the token.
    pub fn seal(&self, ambient: &Ambient, grant: &SignedGrant) -> Result<Vec<u8>, SealError> {
        let text = serde_json::to_vec(grant).unwrap_or_default();
        self.sealer()?.seal(ambient, BOUND_TO, &text)
    }

    pub fn open(&self, sealed: &[u8]) -> Option<SignedGrant> {
        let text = self.sealer().ok()?.open(BOUND_TO, sealed).ok()?;
        serde_json::from_slice(text.expose()).ok()
    }
}

#[cfg(test)]
mod tests {
    use node_proto::text::Base64;

    use super::*;

    #[test]
    fn a_token_reads_back_and_its_hash_tells_nothing_of_it() {
        let token = TerminalToken::random(&Ambient::system());
        let text = token.text();
        let read = TerminalToken::parse(text.expose()).unwrap();
        assert_eq!(read.hash(), token.hash());
        assert_ne!(&token.hash(), token.0.expose());
        for bad in ["", "gpterm_", "gpterm_AAAA", "AAAA", &text.expose()[1..], &format!("{}A", text.expose())]
        {
            assert!(TerminalToken::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_grant_opens_only_with_the_token_that_sealed_it() {
        let ambient = Ambient::system();
        let grant =
            SignedGrant { payload: Base64(vec![1]), signer_version: 1, signature: Base64(vec![2; 64]) };
        let (token, other) = (TerminalToken::random(&ambient), TerminalToken::random(&ambient));
        let sealed = token.seal(&ambient, &grant).unwrap();
        assert_eq!(token.open(&sealed), Some(grant));
        assert_eq!(other.open(&sealed), None);
        assert_eq!(token.open(&sealed[1..]), None);
    }
}
