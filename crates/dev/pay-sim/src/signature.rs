//! How messages are signed: `t=SECONDS,v1=HEX[,v1=HEX]`, HMAC-SHA-256 over `SECONDS.BODY`, once with each secret.

use aws_lc_rs::hmac;

pub fn header(secrets: &[String], at: i64, body: &[u8]) -> String {
    let mut signed = format!("{at}.").into_bytes();
    signed.extend_from_slice(body);
    secrets.iter().fold(format!("t={at}"), |header, secret| {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), &signed);
        format!("{header},v1={}", kernel::hex::encode(tag.as_ref()))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_secret_signs_the_exact_bytes() {
        let one = super::header(&["a".to_owned()], 7, b"{}");
        let both = super::header(&["a".to_owned(), "b".to_owned()], 7, b"{}");
        assert!(both.starts_with(&one) && both.matches(",v1=").count() == 2, "{both}");
        assert_ne!(one, super::header(&["a".to_owned()], 7, b"{} "));
        assert_ne!(one, super::header(&["a".to_owned()], 8, b"{}"));
    }
}
