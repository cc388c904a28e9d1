//! The links of an invitation: the one in its mail, and the one that the inviter may pass on.
//!
//! Whoever invites sees a token and could sign up with it as anybody whom they name; the link that they are shown holds that
//! token. The mailed link holds a proof instead: a tag over invitation and address under a key that is derived from the master key. It is computed when the
//! mail is sent and when it comes back, and stands nowhere in between, so only the receiver of the mail can show it. It
//! is worth something while the invitation is pending.

use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use kernel::{Secret, ids::InvitationId};

/// Makes and checks links. Cheap to clone.
#[derive(Clone)]
pub struct InvitationLinks(Arc<Inner>);

struct Inner {
    key: hmac::Key,
    public_url: String,
    is_mailed: bool,
}

/// What somebody shows who opened a link.
#[derive(Clone, Debug)]
pub struct OpenedLink {
    pub invitation_id: InvitationId,
    pub secret: LinkSecret,
}

#[derive(Clone, Debug)]
pub enum LinkSecret {
    /// Of the mail: whoever shows it reads mail at the invited address.
    Proof(Secret),
    /// The inviter's token. It says nothing about the address.
    Token(Secret),
}

impl LinkSecret {
    /// The parameter of the address, and its value.
    pub fn parameter(&self) -> (&'static str, &Secret) {
        match self {
            Self::Proof(secret) => ("proof", secret),
            Self::Token(secret) => ("token", secret),
        }
    }

    pub fn proves_address(&self) -> bool {
        matches!(self, Self::Proof(_))
    }
}

impl InvitationLinks {
    /// `is_mailed` says whether this installation sends mail: then nobody signs up by a token alone.
    pub fn new(master_key: &Secret<[u8; 32]>, public_url: &str, is_mailed: bool) -> Self {
        Self(Arc::new(Inner {
            key: trust::derive(master_key, b"links of mailed invitations"),
            public_url: public_url.trim_end_matches('/').to_owned(),
            is_mailed,
        }))
    }

    pub fn is_mailed(&self) -> bool {
        self.0.is_mailed
    }

    /// The address that the mail leads to. It is a secret: who holds it can sign up as the receiver.
    pub fn link(&self, id: InvitationId, email: &str) -> Secret {
        let proof = BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&self.0.key, message(id, email).as_bytes()));
        self.address(&OpenedLink { invitation_id: id, secret: LinkSecret::Proof(Secret::new(proof)) })
    }

    /// The address that the inviter passes on. Also a secret: who holds it can join in the receiver's place.
    pub fn link_to_pass_on(&self, id: InvitationId, token: &Secret) -> Secret {
        self.address(&OpenedLink { invitation_id: id, secret: LinkSecret::Token(token.clone()) })
    }

    fn address(&self, link: &OpenedLink) -> Secret {
        Secret::new(format!("{}{}", self.0.public_url, link.path().expose()))
    }

    pub fn public_url(&self) -> &str {
        &self.0.public_url
    }

    /// Whether `proof` is of the mail that was sent to `email` for this invitation; takes the same time for every wrong one.
    pub fn proves(&self, id: InvitationId, email: &str, proof: &str) -> bool {
        let Ok(tag) = BASE64_URL_SAFE_NO_PAD.decode(proof) else { return false };
        hmac::verify(&self.0.key, message(id, email).as_bytes(), &tag).is_ok()
    }
}

impl OpenedLink {
    /// Where the issuer shows it.
    pub fn path(&self) -> Secret {
        let (name, secret) = self.secret.parameter();
        Secret::new(format!("/auth/invitation?invitation={}&{name}={}", self.invitation_id, secret.expose()))
    }
}

fn message(id: InvitationId, email: &str) -> String {
    format!("{id}\0{}", email.to_lowercase())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn proof(links: &InvitationLinks, id: InvitationId, email: &str) -> String {
        links.link(id, email).expose().rsplit_once("proof=").unwrap().1.to_owned()
    }

    #[test]
    fn a_proof_is_of_one_invitation_one_address_and_one_installation() {
        let links = InvitationLinks::new(&Secret::new([7; 32]), "https://gpu.example.org/", true);
        let (one, other) = (InvitationId::from(Uuid::from_u128(1)), InvitationId::from(Uuid::from_u128(2)));
        let shown = proof(&links, one, "Ada@Example.org");
        assert!(links.proves(one, "ada@example.org", &shown), "addresses are compared in lower case");
        assert!(!links.proves(other, "ada@example.org", &shown));
        assert!(!links.proves(one, "eve@example.org", &shown));
        let elsewhere = InvitationLinks::new(&Secret::new([8; 32]), "https://gpu.example.org", true);
        assert!(!elsewhere.proves(one, "ada@example.org", &shown));
        for wrong in ["", "x", &shown[1..], "not base64 !"] {
            assert!(!links.proves(one, "ada@example.org", wrong), "{wrong}");
        }
    }

    #[test]
    fn a_link_leads_to_the_issuer_and_is_not_printed() {
        let links = InvitationLinks::new(&Secret::new([7; 32]), "https://gpu.example.org/", true);
        let id = InvitationId::from(Uuid::from_u128(1));
        let link = links.link(id, "ada@example.org");
        assert!(
            link.expose()
                .starts_with(&format!("https://gpu.example.org/auth/invitation?invitation={id}&proof="))
        );
        assert!(!format!("{link:?}").contains("proof"));
        let shown = Secret::new(proof(&links, id, "ada@example.org"));
        let mailed = OpenedLink { invitation_id: id, secret: LinkSecret::Proof(shown) };
        assert!(link.expose().ends_with(mailed.path().expose()));
        let token = Secret::new("the-token".to_owned());
        let passed = links.link_to_pass_on(id, &token);
        let expected = format!("https://gpu.example.org/auth/invitation?invitation={id}&token=the-token");
        assert_eq!(passed.expose(), &expected);
    }

    #[test]
    fn an_installation_says_whether_it_sends_mail() {
        for is_mailed in [true, false] {
            let links = InvitationLinks::new(&Secret::new([7; 32]), "https://gpu.example.org", is_mailed);
            assert_eq!(links.is_mailed(), is_mailed);
        }
    }
}
