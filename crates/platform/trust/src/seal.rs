//! Sealing with the master key: AES-256-GCM, a fresh random nonce each time, bound to what it seals.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    error::Unspecified,
    hmac,
};
use kernel::{Ambient, Secret};

/// The content could not be sealed or opened: another key, another owner, or altered bytes. It says no more.
pub type SealError = Unspecified;

pub struct Sealer(LessSafeKey);

impl Sealer {
    /// Seals with a key that is derived for one purpose.
    pub fn for_purpose(master_key: &Secret<[u8; 32]>, purpose: &[u8]) -> Result<Self, SealError> {
        let root = hmac::Key::new(hmac::HMAC_SHA256, master_key.expose());
        let key = hmac::sign(&root, purpose);
        Ok(Self(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref())?)))
    }

    pub fn new(master_key: &Secret<[u8; 32]>) -> Result<Self, SealError> {
        Ok(Self(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, master_key.expose())?)))
    }

    /// nonce ‖ ciphertext ‖ tag
    pub fn seal(&self, ambient: &Ambient, bound_to: &str, secret: &[u8]) -> Result<Vec<u8>, SealError> {
        let nonce: [u8; NONCE_LEN] = ambient.bytes();
        let mut text = secret.to_vec();
        let aad = Aad::from(bound_to.as_bytes());
        self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut text)?;
        Ok([&nonce[..], &text].concat())
    }

    pub fn open(&self, bound_to: &str, sealed: &[u8]) -> Result<Secret<Vec<u8>>, SealError> {
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN).ok_or(Unspecified)?;
        let mut text = text.to_vec();
        let aad = Aad::from(bound_to.as_bytes());
        let length = self.0.open_in_place(Nonce::try_assume_unique_for_key(nonce)?, aad, &mut text)?.len();
        text.truncate(length);
        Ok(Secret::new(text))
    }
}

/// Secret bytes of their own for another purpose, such as the seed of a signing key.
pub fn secret_for(master_key: &Secret<[u8; 32]>, purpose: &[u8]) -> Secret<[u8; 32]> {
    let root = hmac::Key::new(hmac::HMAC_SHA256, master_key.expose());
    let mut bytes = [0; 32];
    for (to, from) in bytes.iter_mut().zip(hmac::sign(&root, purpose).as_ref()) {
        *to = *from;
    }
    Secret::new(bytes)
}

/// A key of its own for another purpose.
pub fn derive(master_key: &Secret<[u8; 32]>, purpose: &[u8]) -> hmac::Key {
    let root = hmac::Key::new(hmac::HMAC_SHA256, master_key.expose());
    hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, purpose).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_opens_only_whole_with_the_same_key_and_for_the_same_thing() {
        let ambient = Ambient::system();
        let sealer = Sealer::new(&Secret::new([7; 32])).unwrap();
        let sealed = sealer.seal(&ambient, "a", b"private").unwrap();
        assert_eq!(sealer.open("a", &sealed).unwrap().expose(), b"private");
        assert!(sealer.open("b", &sealed).is_err());
        assert!(sealer.open("a", &sealed[..sealed.len() - 1]).is_err());
        assert!(sealer.open("a", &[]).is_err());
        assert!(Sealer::new(&Secret::new([8; 32])).unwrap().open("a", &sealed).is_err());
        assert_ne!(sealed, sealer.seal(&ambient, "a", b"private").unwrap());
        assert!(Sealer::for_purpose(&Secret::new([7; 32]), b"other").unwrap().open("a", &sealed).is_err());
    }
    #[test]
    fn each_purpose_and_each_master_key_has_secret_bytes_of_its_own() {
        let secret = |key: u8, purpose: &[u8]| *secret_for(&Secret::new([key; 32]), purpose).expose();
        assert_eq!(secret(7, b"one"), secret(7, b"one"));
        assert_ne!(secret(7, b"one"), secret(7, b"other"));
        assert_ne!(secret(7, b"one"), secret(8, b"one"));
    }
}
