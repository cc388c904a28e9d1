//! The link in the mail of an invitation.
//!
//! Whoever invites sees a token and could sign up with it as anybody whom they name. The mailed link holds a proof
//! instead: a tag over invitation and address under a key that is derived from the master key. It is computed when the
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
pub struct MailedLink {
    pub invitation_id: InvitationId,
    pub proof: Secret,
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
        Secret::new(format!("{}{}", self.0.public_url, link_path(id, &proof)))
    }

    /// Whether `proof` is of the mail that was sent to `email` for this invitation; takes the same time for every wrong one.
    pub fn proves(&self, id: InvitationId, email: &str, proof: &str) -> bool {
        let Ok(tag) = BASE64_URL_SAFE_NO_PAD.decode(proof) else { return false };
        hmac::verify(&self.0.key, message(id, email).as_bytes(), &tag).is_ok()
    }
}

impl MailedLink {
    /// Where the issuer shows it.
    pub fn path(&self) -> Secret {
        Secret::new(link_path(self.invitation_id, self.proof.expose()))
    }
}

fn link_path(id: InvitationId, proof: &str) -> String {
    format!("/auth/invitation?invitation={id}&proof={proof}")
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
        let mailed =
            MailedLink { invitation_id: id, proof: Secret::new(proof(&links, id, "ada@example.org")) };
        assert!(link.expose().ends_with(mailed.path().expose()));
    }
    #[test]
    fn an_installation_says_whether_it_sends_mail() {
        for is_mailed in [true, false] {
            let links = InvitationLinks::new(&Secret::new([7; 32]), "https://gpu.example.org", is_mailed);
            assert_eq!(links.is_mailed(), is_mailed);
        }
    }
}
