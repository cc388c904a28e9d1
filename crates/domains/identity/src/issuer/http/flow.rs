//! Whether somebody signed in for the very request that is being answered.
//!
//! Any program on a computer can open the browser and pose as the command line. A browser that is signed in
//! already must therefore ask its person; one whose person has just typed the password for this request
//! need not. The proof of the latter travels in the address: a tag over the new sign-in and the request.

use aws_lc_rs::hmac;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use kernel::Secret;

use super::cx::{Cx, Params};

/// What an authorization request is made of, but for `prompt`: what that asks for is done by signing in.
pub(super) const ASKED: [&str; 10] = [
    "client_id",
    "redirect_uri",
    "response_type",
    "response_mode",
    "scope",
    "state",
    "nonce",
    "code_challenge",
    "code_challenge_method",
    "max_age",
];
const TAG: &str = "signed_in";

/// The address of an authorization request.
pub(super) fn address(params: &Params) -> String {
    let query = serde_urlencoded::to_string(params.only(&ASKED)).unwrap_or_default();
    format!("/auth/authorize?{query}")
}

/// (No form token is ever made over such a text: seeds of forms hold no slash.)
fn message(cookie: &str, params: &Params) -> String {
    format!("{}\0{cookie}", address(params))
}

impl Cx {
    /// Where to go after signing in. An authorization request is told that it was signed in for.
    pub fn after_signing_in(&self, cookie: &Secret) -> String {
        let Some(to) = self.continue_to() else { return "/auth/login".to_owned() };
        let asked =
            to.strip_prefix("/auth/authorize?").and_then(|query| Params::parse(query.as_bytes()).ok());
        let Some(params) = asked else { return to.to_owned() };
        let tag = hmac::sign(&self.issuer.0.csrf_key, message(cookie.expose(), &params).as_bytes());
        format!("{}&{TAG}={}", address(&params), BASE64_URL_SAFE_NO_PAD.encode(tag))
    }

    /// Whether this sign-in was made for this request.
    pub fn signed_in_for(&self, params: &Params) -> bool {
        let Some(cookie) = &self.session_cookie else { return false };
        let Ok(tag) = BASE64_URL_SAFE_NO_PAD.decode(params.text(TAG)) else { return false };
        hmac::verify(&self.issuer.0.csrf_key, message(cookie, params).as_bytes(), &tag).is_ok()
    }
}
