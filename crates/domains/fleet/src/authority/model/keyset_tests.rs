use super::*;

fn at() -> DateTime<Utc> {
    DateTime::UNIX_EPOCH
}

fn states(keyset: &Keyset) -> Vec<(u32, Listed)> {
    keyset.signers.iter().map(|key| (key.signer_version, key.state)).collect()
}

fn apply(keyset: &Keyset, change: Change) -> Result<Keyset, Code> {
    change.next(keyset, keyset.serial + 1, at()).map(|(next, _)| next).map_err(|problem| problem.code)
}

fn stage(version: u32) -> Change {
    Change::Stage { signer_version: version, public_key: vec![u8::try_from(version).unwrap(); 32] }
}

#[test]
fn a_rotation_goes_through_staged_active_grace_and_out_of_the_list() {
    let one = first(1, at(), 1, &[1; 32]);
    let two = apply(&one, stage(2)).unwrap();
    assert_eq!(states(&two), [(1, Listed::Active), (2, Listed::Staged)]);
    let three = apply(&two, Change::Activate(2)).unwrap();
    assert_eq!(states(&three), [(1, Listed::Grace), (2, Listed::Active)]);
    let four = apply(&three, Change::Retire(1)).unwrap();
    assert_eq!((states(&four), four.serial), (vec![(2, Listed::Active)], 4));
    assert_eq!(four.public_key(2), Some(&[2; 32][..]));
    assert_eq!(since(&[one, two, three, four]), BTreeMap::from([(1, 4), (2, 3)]));
}

#[test]
fn every_step_that_the_list_does_not_allow_is_refused() {
    let one = first(1, at(), 1, &[1; 32]);
    let two = apply(&one, stage(2)).unwrap();
    let three = apply(&two, Change::Activate(2)).unwrap();
    for (keyset, change) in [
        (&one, Change::Activate(1)),
        (&one, Change::Retire(1)),
        (&one, Change::Revoke(1)),
        (&one, Change::Activate(9)),
        (&one, Change::Retire(9)),
        (&one, Change::Revoke(9)),
        (&two, Change::Retire(2)),
        (&three, Change::Activate(1)),
        (&three, Change::Retire(2)),
        (&three, Change::Revoke(2)),
    ] {
        assert_eq!(apply(keyset, change.clone()).unwrap_err(), Code::InvalidTransition, "{change:?}");
    }
    assert_eq!(apply(&two, stage(3)).unwrap_err(), Code::AlreadyExists);
}

#[test]
fn a_revoked_active_signer_is_replaced_by_the_staged_one_in_the_same_list() {
    let two = apply(&first(1, at(), 1, &[1; 32]), stage(2)).unwrap();
    let change = Change::Revoke(1);
    let (next, moves) = change.next(&two, 3, at()).unwrap();
    assert_eq!(states(&next), [(2, Listed::Active)]);
    assert_eq!(moves, [(1, SignerEvent::Revoke), (2, SignerEvent::Activate)]);
    assert_eq!(active(&next), Some(2));
    assert_eq!(states(&apply(&two, Change::Revoke(2)).unwrap()), [(1, Listed::Active)]);
}
