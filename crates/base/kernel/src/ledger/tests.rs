use chrono::{DateTime, TimeDelta};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{
    digest::sha256,
    hex::Hex,
    ids::{AllocationId, MeterId, OrgId, PostingId, ProjectId, UserId},
    principal::PrincipalId,
};

mod faults;

const KEY: &[u8] = b"a key";

fn org() -> OrgId {
    OrgId::from(Uuid::from_u128(7))
}

/// Stands in for Ed25519: this crate brings no signatures.
fn sign(key: &[u8], message: &[u8]) -> Vec<u8> {
    sha256([key, message].concat()).to_vec()
}

fn verify(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    key == KEY && signature == sign(key, message)
}

/// A good chain, as an export has it.
#[derive(Clone)]
struct Chain {
    head: Head,
    postings: Vec<(Posting, Vec<Line>, Option<Checkpoint>)>,
}

impl Chain {
    /// Each posting moves these amounts (from prepaid, to held, to revenue), and every third is signed.
    fn from_amounts(amounts: &[(i64, i64)]) -> Self {
        let postings = amounts.iter().zip(1..).map(|((prepaid, held), seq)| {
            let mut accounts = vec![("prepaid", -prepaid), ("held", *held), ("revenue", prepaid - held)];
            accounts.retain(|(_, amount)| *amount != 0);
            (
                posting(seq),
                accounts.iter().zip(1..).map(|(a, line)| self::line(seq, line, a.0, a.1)).collect(),
                None,
            )
        });
        let mut chain = Self { head: Head::empty(org(), "USD"), postings: postings.collect() };
        chain.seal(0, true);
        for seq in (3..=chain.postings.len()).step_by(3) {
            chain.sign(seq);
        }
        chain
    }

    /// Gives everything from a posting on the hashes that fit, as whoever writes a chain anew would.
    fn seal(&mut self, from: usize, balances: bool) {
        let mut after = [0; 4];
        let mut hash = Hex(genesis(org()).to_vec());
        for (index, (posting, lines, _)) in self.postings.iter_mut().enumerate() {
            if index >= from {
                for line in lines.iter_mut() {
                    line.leaf = Hex(line.expected_leaf().to_vec());
                    if let Some(place) = line.balance().filter(|_| balances) {
                        after[place] += line.amount_minor;
                    }
                }
                if balances {
                    [posting.prepaid_after_minor, posting.held_after_minor, ..] = after;
                    posting.lines = i32::try_from(lines.len()).unwrap();
                }
                posting.lines_digest = Hex(digest(lines.iter().map(|line| line.leaf.0.as_slice())).to_vec());
                posting.prev_hash = hash.clone();
                posting.hash = Hex(posting.expected_hash(&hash.0).to_vec());
            }
            after = posting.balances();
            hash = posting.hash.clone();
        }
        self.head.seq = i64::try_from(self.postings.len()).unwrap();
        self.head.hash = hash;
    }

    fn sign(&mut self, seq: usize) {
        self.sign_with(seq, KEY);
    }

    fn sign_with(&mut self, seq: usize, key: &[u8]) {
        let (posting, _, checkpoint) = &mut self.postings[seq - 1];
        let mut signed = Checkpoint {
            org_id: org(),
            day: posting.posted_at.date_naive(),
            prev_seq: self.head.checkpoint_seq,
            seq: posting.seq,
            hash: posting.hash.clone(),
            signed_at: posting.posted_at + TimeDelta::hours(1),
            key_id: key_id(key),
            public_key: Hex(key.to_vec()),
            signature: Hex(Vec::new()),
        };
        signed.signature = Hex(sign(key, &signed.message()));
        self.head.checkpoint_seq = posting.seq;
        *checkpoint = Some(signed);
    }

    fn records(&self) -> Vec<ExportLine> {
        let mut out = vec![ExportLine::Head(self.head.clone())];
        for (posting, lines, checkpoint) in self.postings.clone() {
            out.push(ExportLine::Posting(Box::new(posting)));
            out.extend(lines.into_iter().map(|line| ExportLine::Line(Box::new(line))));
            out.extend(checkpoint.map(|checkpoint| ExportLine::Checkpoint(Box::new(checkpoint))));
        }
        out
    }

    fn export(&self) -> Vec<String> {
        self.records().iter().map(|line| serde_json::to_string(line).unwrap()).collect()
    }

    fn check(&self) -> Result<Verified, (i64, Option<i32>, FaultReason)> {
        check(&self.export()).map_err(|fault| match fault {
            ExportFault::Chain(fault) => (fault.seq, fault.line, fault.reason),
            other => panic!("{other}"),
        })
    }
}

fn check(lines: &[String]) -> Result<Verified, ExportFault> {
    let mut verifier = ExportVerifier::default();
    lines.iter().try_for_each(|line| verifier.line(line, &verify))?;
    verifier.finish()
}

fn posting(seq: i64) -> Posting {
    Posting {
        id: PostingId::from(Uuid::from_u128(100 + seq.unsigned_abs() as u128)),
        org_id: org(),
        seq,
        posted_at: DateTime::from_timestamp_micros(1_700_000_000_123_456 + seq * 3_600_000_000).unwrap(),
        kind: "usage".to_owned(),
        currency: "USD".to_owned(),
        reference: (seq % 2 == 0).then(|| format!("ü{seq}")),
        reason: "metered use".to_owned(),
        corrects_entry_id: None,
        actor_kind: "user".to_owned(),
        actor_id: Some(PrincipalId::User(UserId::from(Uuid::from_u128(3)))),
        correlation_id: Uuid::from_u128(9),
        lines: 0,
        lines_digest: Hex(Vec::new()),
        prepaid_after_minor: 0,
        held_after_minor: 0,
        promo_after_minor: 0,
        disputed_after_minor: 0,
        prev_hash: Hex(Vec::new()),
        hash: Hex(Vec::new()),
    }
}

fn line(seq: i64, line: i32, account: &str, amount_minor: i64) -> Line {
    let posted_at = posting(seq).posted_at;
    Line {
        seq,
        line,
        posted_at,
        account: account.to_owned(),
        amount_minor,
        project_id: Some(ProjectId::from(Uuid::from_u128(11))),
        allocation_id: (line == 1).then(|| AllocationId::from(Uuid::from_u128(12))),
        app_instance_id: None,
        meter_id: Some(MeterId::from(Uuid::from_u128(13))),
        window_start: Some(posted_at - TimeDelta::hours(1)),
        window_end: Some(posted_at),
        correlation_id: Uuid::from_u128(9),
        leaf: Hex(Vec::new()),
    }
}

fn amounts() -> impl Strategy<Value = Vec<(i64, i64)>> {
    let amount = prop_oneof![-1_000_000_000_000i64..-1, 1..1_000_000_000_000i64];
    prop::collection::vec((amount.clone(), amount), 1..12)
}

proptest! {
    #[test]
    fn every_good_chain_passes_as_records_and_as_text(amounts in amounts()) {
        let chain = Chain::from_amounts(&amounts);
        let lines = chain.postings.iter().map(|(_, lines, _)| lines.len() as u64).sum();
        let found = check(&chain.export()).unwrap();
        prop_assert_eq!((found.chains, found.postings, found.lines), (1, amounts.len() as u64, lines));
        prop_assert_eq!(found.checkpoints, amounts.len() as u64 / 3);
    }

    #[test]
    fn one_changed_byte_anywhere_in_an_export_is_found(
        amounts in amounts(), place in any::<prop::sample::Index>(), byte in 1u8..=255
    ) {
        let mut bytes = Chain::from_amounts(&amounts).export().join("\n").into_bytes();
        let place = place.index(bytes.len());
        bytes[place] ^= byte;
        let lines: Vec<String> =
            bytes.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        prop_assert!(check(&lines).is_err());
    }

    #[test]
    fn one_removed_repeated_or_moved_record_is_found(
        amounts in amounts(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(), what in 0..3u8
    ) {
        let good = Chain::from_amounts(&amounts).export();
        let (from, to) = (from.index(good.len()), to.index(good.len()));
        let mut lines = good.clone();
        match what {
            0 => drop(lines.remove(from)),
            1 => lines.insert(to, good[from].clone()),
            _ => lines.swap(from, to),
        }
        // A head in front of a whole export begins a chain without anything in it, which it says it has.
        prop_assert_eq!(check(&lines).is_ok(), lines == good);
    }

    #[test]
    fn no_text_panics(lines in prop::collection::vec(any::<String>(), 0..5)) {
        let _ = check(&lines);
    }

    #[test]
    fn no_numbers_panic(seq in any::<i64>(), number in any::<i32>(), lines in any::<i32>(), amount in any::<i64>()) {
        let mut chain = Chain::from_amounts(&[(5, 2), (i64::MAX - 9, 1)]);
        let (posting, of, _) = &mut chain.postings[1];
        posting.lines = lines;
        posting.prepaid_after_minor = amount;
        of[0].line = number;
        of[1].amount_minor = amount;
        of[2].seq = seq;
        chain.seal(0, false);
        let _ = chain.check();
        chain.head.seq = seq;
        chain.head.checkpoint_seq = seq;
        chain.postings[0].0.seq = seq;
        let _ = chain.check();
    }
}

#[test]
fn several_chains_follow_each_other_and_an_empty_one_is_good() {
    let chain = Chain::from_amounts(&[(5, 2), (3, 3), (4, 1)]).export();
    let found = check(&[chain.clone(), chain.clone()].concat()).unwrap();
    assert_eq!((found.chains, found.postings, found.checkpoints), (2, 6, 2));
    assert_eq!(found.keys.into_iter().collect::<Vec<_>>(), [key_id(KEY)]);
    let empty = serde_json::to_string(&ExportLine::Head(Head::empty(org(), "EUR"))).unwrap();
    assert_eq!(check(&[empty]).unwrap().postings, 0);
    assert_eq!(check(&[]), Err(ExportFault::Empty));
    assert_eq!(check(&chain[1..]), Err(ExportFault::Headless { line: 1 }));
}

#[test]
fn faults_say_where_and_what() {
    let fault = Fault { org_id: org(), seq: 4, line: Some(2), id: None, reason: FaultReason::Changed };
    let text = "ledger of org_00000000000000000000000000000007, posting 4, line 2: its content was changed after it was written";
    assert_eq!(fault.to_string(), text);
}

#[test]
fn where_a_chain_starts_and_how_a_key_is_named_do_not_change() {
    assert_eq!(genesis(org()), sha256("gpuaas-ledger:00000000-0000-0000-0000-000000000007"));
    assert_eq!(key_id(b""), "e3b0c44298fc1c14", "the first eight bytes of its SHA-256");
}

#[test]
fn a_file_that_means_the_same_is_still_not_what_was_exported() {
    let good = Chain::from_amounts(&[(5, 2)]).export();
    for (from, to) in
        [("\"hash\":\"", "\"hash\": \""), ("\"currency\":\"USD\"", "\"currency\":\"\\u0055SD\"")]
    {
        let mut changed = good.clone();
        changed[1] = changed[1].replacen(from, to, 1);
        assert_ne!(changed, good);
        assert_eq!(check(&changed), Err(ExportFault::Unreadable { line: 2 }), "{to}");
    }
}

#[test]
fn a_verification_names_a_hundred_keys_and_no_more() {
    for (signed, named) in [(99, 99), (100, 100), (102, 100)] {
        let mut chain = Chain::from_amounts(&vec![(5, 2); signed]);
        chain.head.checkpoint_seq = 0;
        (1..=signed).for_each(|seq| chain.sign_with(seq, &seq.to_be_bytes()));
        let any_key = |key: &[u8], message: &[u8], signature: &[u8]| signature == sign(key, message);
        let mut verifier = ExportVerifier::default();
        chain.records().iter().try_for_each(|record| verifier.record(record, &any_key)).unwrap();
        let found = verifier.finish().unwrap();
        assert_eq!((found.checkpoints, found.keys.len()), (signed as u64, named));
    }
}

#[test]
fn each_account_of_the_organization_moves_its_own_balance() {
    let accounts = ["prepaid", "held", "promo", "disputed", "revenue", "cash_stripe"];
    let places = accounts.map(|account| line(1, 1, account, 5).balance());
    assert_eq!(places, [Some(0), Some(1), Some(2), Some(3), None, None]);
}
