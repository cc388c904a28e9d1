//! Certificates in their text form.

use base64::{Engine as _, prelude::BASE64_STANDARD};

const LINE: usize = 64;

/// One certificate as PEM.
pub(crate) fn certificate(der: &[u8]) -> String {
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    for (at, symbol) in BASE64_STANDARD.encode(der).chars().enumerate() {
        if at > 0 && at % LINE == 0 {
            out.push('\n');
        }
        out.push(symbol);
    }
    out + "\n-----END CERTIFICATE-----\n"
}
