//! How a webhook's receiver knows that it was us: `GPUaaS-Signature: t=<seconds>,v1=<hex>`, an HMAC-SHA256 with the
//! webhook's secret over `<seconds>.<body>`. While a secret is replaced there are two `v1`, one for each.

use aws_lc_rs::hmac;
use chrono::{DateTime, Utc};
use kernel::{Ambient, Secret};

pub const HEADER: &str = "GPUaaS-Signature";

/// A new secret, as its owner is shown it. The whole text is the key.
pub fn new_secret(ambient: &Ambient) -> Secret<String> {
    let bytes = Secret::new(ambient.bytes::<32>());
    Secret::new(format!("whsec_{}", kernel::hex::encode(bytes.expose())))
}

/// The header's value.
pub fn sign(secrets: &[Secret<Vec<u8>>], at: DateTime<Utc>, body: &[u8]) -> String {
    let seconds = at.timestamp();
    let mut value = format!("t={seconds}");
    for secret in secrets {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret.expose()));
        context.update(format!("{seconds}.").as_bytes());
        context.update(body);
        value += &format!(",v1={}", kernel::hex::encode(context.sign().as_ref()));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_what_another_program_computes() {
        // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac whsec_test
        let at = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        let secret = Secret::new(b"whsec_test".to_vec());
        let header = sign(&[secret], at, br#"{"a":1}"#);
        assert_eq!(
            header,
            "t=1700000000,v1=38877139021993b830af32feea6e18a8da83eb2f6e49ee50bd9e4cf4ca4d3789"
        );
    }

    #[test]
    fn two_secrets_make_two_signatures() {
        let secrets = [Secret::new(b"a".to_vec()), Secret::new(b"b".to_vec())];
        assert_eq!(sign(&secrets, DateTime::UNIX_EPOCH, b"x").matches(",v1=").count(), 2);
    }
}
