//! Clients, PKCE, codes and passwords, at their bounds and beside them.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use kernel::{Entropy, ManualClock};

use super::*;

/// Bytes that count up, so that what is made of randomness is known.
struct CountingBytes(AtomicU8);

impl Entropy for CountingBytes {
    fn fill(&self, out: &mut [u8]) {
        out.iter_mut().for_each(|byte| *byte = self.0.fetch_add(1, Ordering::Relaxed));
    }
}

fn counting_from(first: u8) -> Ambient {
    Ambient::new(
        ManualClock::starting_at(DateTime::UNIX_EPOCH),
        Arc::new(CountingBytes(AtomicU8::new(first))),
    )
}

#[test]
fn loopback_redirects_take_any_port_and_nothing_else() {
    let cli = &clients(&[])[0];
    for good in ["http://127.0.0.1:1/callback", "http://[::1]:65535/callback"] {
        assert!(cli.may_redirect_to(good), "{good}");
    }
    for bad in [
        "http://127.0.0.1/callback",
        "http://127.0.0.1:0/callback",
        "http://127.0.0.1:99999/callback",
        "http://127.0.0.1:80/callback?x",
        "http://127.0.0.1:80/callback#x",
        "http://127.0.0.1:80/other",
        "http://127.0.0.1:80@evil.example/callback",
        "http://127.0.0.1.evil.example:80/callback",
        "http://localhost:80/callback",
        "https://127.0.0.1:80/callback",
        "http://127.0.0.1:+80/callback",
    ] {
        assert!(!cli.may_redirect_to(bad), "{bad}");
    }
}

#[test]
fn the_console_is_matched_exactly_and_returned_only_to_its_own_origin() {
    let console = &clients(&["https://gpu.example.org/callback".to_owned()])[1];
    assert!(console.may_redirect_to("https://gpu.example.org/callback"));
    for bad in ["https://gpu.example.org/callback/", "https://gpu.example.org/callback?x=1", ""] {
        assert!(!console.may_redirect_to(bad), "{bad}");
    }
    assert!(console.lives_at("https://gpu.example.org/"));
    assert!(!console.lives_at("https://evil.example/"));
    assert!(!console.lives_at("javascript:alert(1)"));
}

#[test]
fn only_the_verifier_of_a_challenge_matches_it() {
    // The example of RFC 7636, appendix B.
    let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"; // secret-scan: allow
    let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
    assert!(is_code_challenge(challenge) && verifier_matches(verifier, challenge));
    assert!(!verifier_matches(&verifier.replace('d', "e"), challenge));
    assert!(!verifier_matches(challenge, challenge), "the plain method is not accepted");
    for (bad, why) in [
        ("x".repeat(42), "too short"),
        ("x".repeat(129), "too long"),
        ("x".repeat(42) + "+", "a character that is not allowed"),
    ] {
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(sha256(&bad));
        assert!(!verifier_matches(&bad, &challenge), "{why}");
    }
    assert!(!is_code_challenge("short") && !is_code_challenge(&"!".repeat(43)));
}

#[test]
fn user_codes_are_read_however_they_are_typed() {
    let code = new_user_code(&Ambient::system());
    assert_eq!(read_user_code(&code).as_deref(), Some(code.as_str()));
    assert_eq!(read_user_code(&code.to_lowercase().replace('-', " ")), Some(code));
    for bad in ["", "BCDF-GHJ", "BCDF-GHJKL", "AAAA-AAAA", "ÄBCDFGH"] {
        assert_eq!(read_user_code(bad), None, "{bad}");
    }
}

#[test]
fn passwords_are_long_enough_and_random_ones_are_accepted() {
    let ambient = Ambient::system();
    assert!(check_password(random_password(&ambient).expose(), "a@b").is_ok());
    assert!(check_password("elevenchars", "a@b").is_err());
    assert!(check_password("twelve-chars", "a@b").is_ok());
    assert!(check_password(&"x".repeat(256), "a@b").is_ok());
    assert!(check_password(&"x".repeat(257), "a@b").is_err());
    assert!(check_password("Someone@Example.org", "someone@example.org").is_err());
}

#[test]
fn scopes_beyond_the_known_are_not_granted() {
    assert_eq!(granted_scope("email openid admin"), "openid email");
    assert_eq!(granted_scope(""), "");
}

#[test]
fn each_letter_of_a_user_code_is_as_likely_as_any_other() {
    // 240 to 255 are drawn again: they would favour the first letters.
    assert_eq!(new_user_code(&counting_from(236)), "VWXZ-BCDF");
}

#[test]
fn a_random_password_is_made_of_all_its_letters() {
    assert_eq!(random_password(&counting_from(30)).expose(), "89abc-defgh-ijkmn-pqrst");
}

#[test]
fn a_secret_is_stored_by_its_hash_only() {
    let (secret, hash) = new_secret(&counting_from(0));
    assert_eq!((secret.expose().len(), hash), (43, sha256(secret.expose())));
}

#[test]
fn a_scope_is_held_as_a_whole_word() {
    assert!(has_scope("openid email", "email") && has_scope("openid", "openid"));
    assert!(!has_scope("openid emails", "email") && !has_scope("", "email"));
}

#[test]
fn only_a_client_on_loopback_is_unproven() {
    let clients = clients(&["https://gpu.example.org/callback".to_owned()]);
    assert_eq!(
        clients.iter().map(|c| (c.id, c.is_unproven())).collect::<Vec<_>>(),
        [(CLI, true), (CONSOLE, false)]
    );
    assert!(!clients[0].lives_at("http://127.0.0.1:1/"), "a command line lives nowhere");
}

#[test]
fn an_account_without_a_name_is_named_by_its_address() {
    let email = Email::parse("ann@example.org").unwrap();
    assert_eq!(account_name(None, &email), "ann");
    assert_eq!(account_name(Name::parse("Ann Lee").ok(), &email), "Ann Lee");
}

#[test]
fn a_refusal_has_the_code_of_its_rfc_and_says_why() {
    for (refusal, code, description) in [
        (Refusal::InvalidRequest("no client"), "invalid_request", "no client"),
        (Refusal::InvalidClient("unknown"), "invalid_client", "unknown"),
        (Refusal::InvalidGrant("gone"), "invalid_grant", "gone"),
        (Refusal::UnsupportedGrantType, "unsupported_grant_type", "not supported"),
        (Refusal::AuthorizationPending, "authorization_pending", "not been approved"),
        (Refusal::SlowDown, "slow_down", "five seconds"),
        (Refusal::ExpiredToken, "expired_token", "expired"),
        (Refusal::AccessDenied, "access_denied", "denied"),
    ] {
        assert_eq!(refusal.code(), code);
        assert!(refusal.description().contains(description), "{refusal:?}");
    }
}
