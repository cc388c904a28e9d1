use super::*;

fn org() -> Option<OrgId> {
    Some(OrgId::from(Uuid::from_u128(7)))
}

/// A good chain of `n` rows with its head.
fn chain(n: i64) -> (ChainHead, Vec<AuditRecord>) {
    let mut hash = Hex(genesis(org()).to_vec());
    let mut rows = Vec::new();
    for seq in 1..=n {
        let mut row = AuditRecord {
            id: AuditId::from(Uuid::from_u128(1000 + u128::from(seq.unsigned_abs()))),
            org_id: org(),
            seq,
            at: DateTime::from_timestamp_micros(1_700_000_000_123_456 + seq).unwrap(),
            actor_kind: "user".to_owned(),
            actor_id: Some(PrincipalId::User(UserId::from(Uuid::from_u128(3)))),
            actor_role: "org_owner".to_owned(),
            on_behalf_of: None,
            action: "project.create".to_owned(),
            target_kind: "project".to_owned(),
            target_id: Some("proj_ü".to_owned()),
            project_id: None,
            result: "allowed".to_owned(),
            code: None,
            correlation_id: Uuid::from_u128(9),
            source_ip: Some("::1".to_owned()),
            before_digest: None,
            after_digest: Some(Hex(vec![0, 255])),
            repeats: None,
            prev_hash: hash.clone(),
            hash: Hex(Vec::new()),
        };
        row.hash = Hex(row.expected_hash(&hash.0).to_vec());
        hash = row.hash.clone();
        rows.push(row);
    }
    (ChainHead { org_id: org(), seq: n, hash }, rows)
}

fn verify(head: &ChainHead, rows: &[AuditRecord]) -> Result<(), ChainFault> {
    let mut verifier = ChainVerifier::new(org());
    rows.iter().try_for_each(|row| verifier.check(row))?;
    verifier.finish(head)
}

#[test]
fn a_good_chain_passes_and_so_does_an_empty_one() {
    let (head, rows) = chain(5);
    assert_eq!(verify(&head, &rows), Ok(()));
    assert_eq!(verify(&ChainHead::empty(org()), &[]), Ok(()));
}

#[test]
fn a_change_of_any_field_is_found_in_the_row_it_was_made() {
    let changes: [fn(&mut AuditRecord); 19] = [
        |r| r.id = AuditId::from(Uuid::from_u128(1)),
        |r| r.at += chrono::TimeDelta::microseconds(1),
        |r| r.actor_kind = "system".to_owned(),
        |r| r.actor_id = None,
        |r| r.actor_role.push('x'),
        |r| r.on_behalf_of = Some(UserId::from(Uuid::from_u128(4))),
        |r| r.action.clear(),
        |r| r.target_kind = "org".to_owned(),
        |r| r.target_id = None,
        |r| r.target_id = Some(String::new()),
        |r| r.project_id = Some(ProjectId::from(Uuid::from_u128(4))),
        |r| r.result = "refused".to_owned(),
        |r| r.code = Some("x".to_owned()),
        |r| r.correlation_id = Uuid::nil(),
        |r| r.source_ip = None,
        |r| r.before_digest = Some(Hex(Vec::new())),
        |r| r.after_digest = Some(Hex(vec![0, 254])),
        |r| r.repeats = Some(1),
        |r| r.hash.0[31] ^= 1,
    ];
    for (index, change) in changes.iter().enumerate() {
        let (head, mut rows) = chain(3);
        change(&mut rows[1]);
        let fault = verify(&head, &rows).unwrap_err();
        assert_eq!((fault.seq, fault.reason), (2, FaultReason::Changed), "change {index}");
    }
}

#[test]
fn a_row_rewritten_with_a_fitting_hash_is_found_by_its_successor_or_the_head() {
    for at in 0..3 {
        let (head, mut rows) = chain(3);
        rows[at].action = "nothing.happened".to_owned();
        let previous = rows[at].prev_hash.0.clone();
        rows[at].hash = Hex(rows[at].expected_hash(&previous).to_vec());
        let fault = verify(&head, &rows).unwrap_err();
        let expected =
            if at == 2 { (3, FaultReason::HeadMismatch) } else { (at as i64 + 2, FaultReason::Unlinked) };
        assert_eq!((fault.seq, fault.reason), expected);
    }
}

#[test]
fn removed_repeated_reordered_and_cut_off_rows_are_found() {
    let (head, rows) = chain(4);
    let fault = |rows: &[AuditRecord]| verify(&head, rows).map_err(|f| (f.seq, f.reason)).unwrap_err();
    assert_eq!(fault(&[&rows[..1], &rows[2..]].concat()), (2, FaultReason::Removed));
    assert_eq!(fault(&rows[1..]), (1, FaultReason::Removed));
    assert_eq!(fault(&rows[..3]), (4, FaultReason::Removed));
    assert_eq!(fault(&[&rows[..2], &rows[1..]].concat()), (2, FaultReason::Inserted));
    let (_, longer) = chain(5);
    assert_eq!(fault(&longer), (5, FaultReason::Inserted));
    let (_, mut foreign) = chain(4);
    foreign[2].org_id = None;
    assert_eq!(fault(&foreign), (3, FaultReason::Inserted));
}

fn export(head: &ChainHead, rows: &[AuditRecord]) -> Vec<String> {
    let head = ExportLine::Head { head: head.clone() };
    let rows = rows.iter().map(|r| ExportLine::Record(Box::new(r.clone())));
    std::iter::once(head).chain(rows).map(|line| serde_json::to_string(&line).unwrap()).collect()
}

fn verify_export(lines: &[String]) -> Result<Verified, ExportFault> {
    let mut verifier = ExportVerifier::default();
    lines.iter().try_for_each(|line| verifier.line(line))?;
    verifier.finish()
}

#[test]
fn an_export_survives_its_text_form_and_a_cut_or_edited_one_does_not() {
    let (head, rows) = chain(3);
    let lines = export(&head, &rows);
    assert_eq!(verify_export(&lines), Ok(Verified { chains: 1, rows: 3 }));
    assert_eq!(verify_export(&[lines.clone(), lines.clone()].concat()), Ok(Verified { chains: 2, rows: 6 }));
    assert!(matches!(verify_export(&lines[..3]), Err(ExportFault::Chain(f)) if f.seq == 3));
    assert_eq!(verify_export(&lines[1..]), Err(ExportFault::Headless { line: 1 }));
    assert_eq!(verify_export(&[]), Err(ExportFault::Empty));
    let mut edited = lines;
    edited[2] = edited[2].replace("org_owner", "org_admin");
    assert!(matches!(verify_export(&edited), Err(ExportFault::Chain(f)) if f.seq == 2));
    edited[2] = "{}".to_owned();
    assert_eq!(verify_export(&edited), Err(ExportFault::Unreadable { line: 3 }));
}

#[test]
fn each_organization_and_the_platform_start_from_a_hash_of_their_own() {
    assert_eq!(genesis(None), sha256("gpuaas-audit:00000000-0000-0000-0000-000000000000"));
    assert_eq!(genesis(org()), sha256("gpuaas-audit:00000000-0000-0000-0000-000000000007"));
}

#[test]
fn a_verifier_counts_the_rows_that_it_found_good() {
    let (_, mut rows) = chain(3);
    rows[2].action.clear();
    let mut verifier = ChainVerifier::new(org());
    assert_eq!(verifier.rows(), 0);
    let first_fault = rows.iter().find_map(|row| verifier.check(row).err());
    assert_eq!((verifier.rows(), first_fault.map(|fault| fault.seq)), (2, Some(3)));
}

#[test]
fn faults_say_where_and_what() {
    let fault = ChainFault { org_id: org(), seq: 4, id: None, reason: FaultReason::Changed };
    let text =
        "chain of org_00000000000000000000000000000007, row 4: its content was changed after it was written";
    assert_eq!(fault.to_string(), text);
    let id = Some(AuditId::from(Uuid::from_u128(1)));
    let fault = ChainFault { org_id: None, seq: 1, id, reason: FaultReason::Removed };
    let text = format!("platform chain, row 1 ({}): the row is missing", AuditId::from(Uuid::from_u128(1)));
    assert_eq!(fault.to_string(), text);
}
