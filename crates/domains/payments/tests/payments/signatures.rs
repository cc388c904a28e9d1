//! Whom we believe.

use chrono::{DateTime, Utc};
use kernel::Secret;
use payments::model::webhook::{Fault, TOLERANCE_SECONDS, sign, verify};
use proptest::prelude::*;

fn secrets() -> Vec<Secret<String>> {
    ["old", "new"].iter().map(|text| Secret::new((*text).to_owned())).collect()
}

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(seconds, 0).unwrap()
}

const NOW: i64 = 1_900_000_000;

fn check(header: &str, body: &[u8]) -> Result<(), Fault> {
    verify(header, body, &secrets(), at(NOW))
}

#[test]
fn either_secret_is_good_while_one_is_replaced_and_a_third_is_not() {
    for secret in ["old", "new"] {
        assert_eq!(check(&sign(secret, NOW, b"{}"), b"{}"), Ok(()), "{secret}");
    }
    assert_eq!(check(&sign("other", NOW, b"{}"), b"{}"), Err(Fault::Unsigned));
    assert_eq!(
        verify(&sign("", NOW, b"{}"), b"{}", &[Secret::new(String::new())], at(NOW)),
        Err(Fault::Unsigned)
    );
    assert_eq!(verify(&sign("old", NOW, b"{}"), b"{}", &[], at(NOW)), Err(Fault::Unsigned));
}

#[test]
fn one_good_signature_among_several_is_enough() {
    let good = sign("new", NOW, b"{}");
    let digest = good.split("v1=").nth(1).unwrap();
    let zeros = "0".repeat(64);
    assert_eq!(check(&format!("t={NOW},v1={zeros},v1={digest},v0={zeros}"), b"{}"), Ok(()));
    assert_eq!(check(&format!("t={NOW},v1={zeros},v0={digest}"), b"{}"), Err(Fault::Unsigned));
    assert_eq!(check(&format!("t={NOW},v0={digest}"), b"{}"), Err(Fault::Malformed));
    assert_eq!(check(&format!("t={NOW},t={},v1={digest}", NOW + 1), b"{}"), Err(Fault::Malformed));
}

#[test]
fn a_signature_is_good_for_five_minutes_in_either_direction() {
    for (age, expected) in [
        (0, Ok(())),
        (TOLERANCE_SECONDS, Ok(())),
        (-TOLERANCE_SECONDS, Ok(())),
        (TOLERANCE_SECONDS + 1, Err(Fault::Stale)),
        (-TOLERANCE_SECONDS - 1, Err(Fault::Stale)),
        (NOW, Err(Fault::Stale)),
    ] {
        assert_eq!(check(&sign("old", NOW - age, b"{}"), b"{}"), expected, "{age}");
    }
}

#[test]
fn headers_that_are_no_signature_are_refused() {
    let digest = "a".repeat(64);
    for header in [
        "",
        ",",
        "=",
        "t",
        "t=",
        "v1=",
        "t=1",
        "t=,v1=",
        "t=x,v1=00",
        "nonsense",
        &format!("t=-5,v1={digest}"),
        &format!("t=99999999999999999999,v1={digest}"),
        &format!("t={NOW},v1=ä{digest}"),
        &format!("t={NOW},v1={}", &digest[1..]),
        &format!("t={NOW},v1={digest}0"),
    ] {
        assert_eq!(check(header, b"{}"), Err(Fault::Malformed), "{header}");
    }
}

proptest! {
    #[test]
    fn whatever_comes_is_answered_and_not_believed(header in "\\PC{0,200}", body in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(check(&header, &body).is_err());
    }

    #[test]
    fn headers_made_of_the_right_parts_are_answered_and_not_believed(
        parts in prop::collection::vec(prop_oneof!["t=[0-9]{0,25}", "v[01]=[0-9a-fA-F]{0,70}", "[a-z=,]{0,5}"], 0..40),
    ) {
        let believed = check(&parts.join(","), b"body").is_ok();
        prop_assert!(!believed);
    }

    #[test]
    fn any_altered_byte_is_found(body in prop::collection::vec(any::<u8>(), 1..300), place in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let header = sign("old", NOW, &body);
        prop_assert_eq!(check(&header, &body), Ok(()));
        let mut altered = body.clone();
        altered[place.index(body.len())] ^= 1 << bit;
        prop_assert_eq!(check(&header, &altered), Err(Fault::Unsigned));
    }
}
