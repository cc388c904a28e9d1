//! Each fault by its name.

use super::*;

fn chain() -> Chain {
    Chain::from_amounts(&[(5, 2), (30, 3), (4, 1), (8, 8), (9, 1), (2, 1), (7, 3)])
}

#[test]
fn a_change_of_any_field_of_a_posting_is_named_with_the_posting() {
    let changes: [fn(&mut Posting); 19] = [
        |p| p.id = PostingId::from(Uuid::from_u128(1)),
        |p| p.posted_at += TimeDelta::microseconds(1),
        |p| p.kind.push('x'),
        |p| p.currency = "EUR".to_owned(),
        |p| p.reference = None,
        |p| p.reference = Some(String::new()),
        |p| p.reason.clear(),
        |p| p.corrects_entry_id = Some(PostingId::from(Uuid::from_u128(1))),
        |p| p.actor_kind = "system".to_owned(),
        |p| p.actor_id = None,
        |p| p.correlation_id = Uuid::nil(),
        |p| p.lines += 1,
        |p| p.lines_digest.0[0] ^= 1,
        |p| p.prepaid_after_minor += 1,
        |p| p.held_after_minor -= 1,
        |p| p.promo_after_minor = 1,
        |p| p.disputed_after_minor = 1,
        |p| p.hash.0[31] ^= 1,
        |p| p.hash.0.truncate(31),
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut chain = chain();
        change(&mut chain.postings[1].0);
        assert_eq!(chain.check(), Err((2, None, FaultReason::Changed)), "change {index}");
    }
    let mut chain = chain();
    chain.postings[1].0.prev_hash.0[3] ^= 1;
    assert_eq!(chain.check(), Err((2, None, FaultReason::Unlinked)));
}

#[test]
fn a_change_of_any_field_of_a_line_is_named_with_the_line() {
    let changes: [fn(&mut Line); 12] = [
        |l| l.posted_at += TimeDelta::microseconds(1),
        |l| l.account = "promo".to_owned(),
        |l| l.amount_minor += 1,
        |l| l.project_id = None,
        |l| l.allocation_id = Some(AllocationId::from(Uuid::nil())),
        |l| l.app_instance_id = Some(Uuid::nil()),
        |l| l.meter_id = None,
        |l| l.window_start = None,
        |l| l.window_end = l.window_start,
        |l| l.correlation_id = Uuid::nil(),
        |l| l.leaf.0[0] ^= 1,
        |l| l.leaf.0.clear(),
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut chain = chain();
        change(&mut chain.postings[1].1[1]);
        assert_eq!(chain.check(), Err((2, Some(2), FaultReason::Changed)), "change {index}");
    }
}

#[test]
fn a_line_with_a_fitting_leaf_is_found_by_the_digest_of_its_posting() {
    let mut chain = chain();
    let line = &mut chain.postings[4].1[0];
    line.amount_minor -= 1;
    line.leaf = Hex(line.expected_leaf().to_vec());
    assert_eq!(chain.check(), Err((5, None, FaultReason::LinesChanged)));
}

#[test]
fn removed_inserted_and_moved_lines_are_named() {
    type Case = (fn(&mut Vec<Line>), i32, FaultReason);
    let cases: [Case; 6] = [
        (|l| drop(l.remove(0)), 1, FaultReason::Removed),
        (|l| drop(l.remove(1)), 2, FaultReason::Removed),
        (|l| drop(l.pop()), 3, FaultReason::Removed),
        (|l| l.push(line(2, 4, "revenue", 1)), 4, FaultReason::Inserted),
        (|l| l.insert(1, line(2, 1, "revenue", 1)), 1, FaultReason::Inserted),
        (|l| l.swap(0, 1), 1, FaultReason::Removed),
    ];
    for (index, (change, number, reason)) in cases.into_iter().enumerate() {
        let mut chain = chain();
        change(&mut chain.postings[1].1);
        assert_eq!(chain.check(), Err((2, Some(number), reason)), "case {index}");
    }
    // Of no posting, of the one after the last, and of one that is over.
    for seq in [99, 8, 2] {
        let mut foreign = chain();
        foreign.postings[6].1.push(line(seq, 1, "prepaid", 1));
        assert_eq!(foreign.check(), Err((seq, Some(1), FaultReason::Inserted)), "{seq}");
    }
}

#[test]
fn removed_inserted_moved_and_cut_off_postings_are_named() {
    let check = |change: fn(&mut Chain)| {
        let mut chain = chain();
        change(&mut chain);
        let (seq, _, reason) = chain.check().unwrap_err();
        (seq, reason)
    };
    assert_eq!(check(|c| drop(c.postings.remove(1))), (2, FaultReason::Removed));
    assert_eq!(check(|c| c.postings.swap(3, 4)), (4, FaultReason::Removed));
    assert_eq!(check(|c| c.postings.insert(4, c.postings[3].clone())), (4, FaultReason::Inserted));
    assert_eq!(check(|c| c.postings[3].0.org_id = OrgId::from(Uuid::nil())), (4, FaultReason::Inserted));
    assert_eq!(check(|c| drop(c.postings.pop())), (7, FaultReason::Removed));
    assert_eq!(check(|c| c.head.seq = 6), (7, FaultReason::Inserted));
    assert_eq!(check(|c| c.head.hash.0[0] ^= 1), (7, FaultReason::HeadMismatch));
    assert_eq!(check(|c| c.head.currency = "EUR".to_owned()), (1, FaultReason::HeadMismatch));
    // Only the posting is gone, and its lines are there.
    let mut lines = chain().export();
    lines.retain(|line| !line.contains("\"posting\"") || !line.contains("\"seq\":2,"));
    let fault = super::check(&lines).unwrap_err();
    assert!(
        matches!(fault, ExportFault::Chain(fault) if (fault.seq, fault.reason) == (2, FaultReason::Removed))
    );
}

#[test]
fn hashes_that_fit_do_not_make_wrong_sums_or_balances_right() {
    let mut unbalanced = chain();
    unbalanced.postings[6].1[0].amount_minor += 1;
    unbalanced.seal(6, true);
    assert_eq!(unbalanced.check(), Err((7, None, FaultReason::Unbalanced)));
    for change in [
        (|p| p.prepaid_after_minor += 1) as fn(&mut Posting),
        |p| p.held_after_minor -= 1,
        |p| p.promo_after_minor = 1,
        |p| p.disputed_after_minor = 1,
    ] {
        let mut wrong = chain();
        change(&mut wrong.postings[6].0);
        wrong.seal(6, false);
        assert_eq!(wrong.check(), Err((7, None, FaultReason::BalancesWrong)));
    }
}

#[test]
fn a_chain_written_anew_with_hashes_that_fit_is_not_what_was_signed() {
    let mut chain = chain();
    for (line, amount) in [(0, -4), (2, 2)] {
        chain.postings[1].1[line].amount_minor = amount;
    }
    chain.postings[1].1[1].amount_minor = 2;
    chain.seal(1, true);
    assert_eq!(chain.check(), Err((3, None, FaultReason::CheckpointMismatch)));
    // After the last signature it cannot be told from a chain that was made so.
    let mut chain = self::chain();
    chain.postings[6].0.reason = "another".to_owned();
    chain.seal(6, true);
    assert!(chain.check().is_ok());
}

#[test]
fn a_chain_cut_off_before_a_signature_is_found_even_if_the_head_was_cut_as_well() {
    let mut chain = chain();
    let (_, _, checkpoint) = chain.postings[5].clone();
    chain.postings.truncate(5);
    chain.seal(5, true);
    chain.postings[4].2 = checkpoint;
    assert_eq!(chain.check(), Err((6, None, FaultReason::Removed)));
}

#[test]
fn changed_foreign_removed_and_inserted_checkpoints_are_found() {
    let changes: [fn(&mut Checkpoint); 10] = [
        |c| c.org_id = OrgId::from(Uuid::nil()),
        |c| c.day += TimeDelta::days(1),
        |c| c.prev_seq = 1,
        |c| c.seq = 4,
        |c| c.hash.0[0] ^= 1,
        |c| c.signed_at += TimeDelta::seconds(1),
        |c| c.key_id.push('0'),
        |c| c.public_key.0[0] ^= 1,
        |c| c.signature.0[0] ^= 1,
        |c| {
            // Somebody signs with a key of their own.
            c.public_key = Hex(b"another".to_vec());
            c.key_id = key_id(b"another");
            c.signature = Hex(sign(b"another", &c.message()));
        },
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut chain = chain();
        change(chain.postings[2].2.as_mut().unwrap());
        let (_, _, reason) = chain.check().unwrap_err();
        assert_eq!(reason, FaultReason::CheckpointForged, "change {index}");
    }
    for (place, seq) in [(2, 3), (5, 6)] {
        let mut removed = chain();
        removed.postings[place].2 = None;
        assert_eq!(removed.check(), Err((seq, None, FaultReason::CheckpointRemoved)));
    }
    let mut inserted = chain();
    inserted.sign(7);
    inserted.head.checkpoint_seq = 6;
    assert_eq!(inserted.check(), Err((7, None, FaultReason::CheckpointInserted)));
    let mut twice = chain();
    twice.postings[3].2 = twice.postings[2].2.clone();
    assert_eq!(twice.check(), Err((3, None, FaultReason::CheckpointInserted)));
}

#[test]
fn a_genuine_checkpoint_stands_right_after_its_posting_and_names_the_one_before() {
    // It leaves out the checkpoint between.
    let mut skipping = chain();
    skipping.head.checkpoint_seq = 0;
    skipping.sign(6);
    assert_eq!(skipping.check(), Err((6, None, FaultReason::CheckpointInserted)));
    // It stands after a posting that it does not sign.
    let mut late = chain();
    late.head.checkpoint_seq = 3;
    late.sign(4);
    late.postings[4].2 = late.postings[3].2.take();
    assert_eq!(late.check(), Err((4, None, FaultReason::CheckpointInserted)));
}
