//! The audit trail cannot be changed by us, and whoever can change it is found out.

use futures_util::TryStreamExt as _;
use identity::service::audit::{AuditVerification, AuditVerifier, audit_export};
use kernel::{
    Code, CorrelationId,
    audit_chain::{ExportFault, ExportVerifier, FaultReason, Verified},
    ids::{OrgId, UserId},
};
use pg::{Actor, Origin, Roles, Scope};

use super::world::World;

/// An organization with five allowed acts and a refused one in its chain.
async fn busy(world: &World) -> (UserId, OrgId) {
    let owner = world.user("owner").await;
    let org = world.org("busy", owner).await.id;
    for slug in ["one", "two", "three", "four"] {
        world.project(owner, org, slug).await;
    }
    let mut origin = Origin::internal(CorrelationId(world.db().ambient().uuid()));
    origin.source_ip = Some("2001:db8::1".to_owned());
    let refusal = pg::Refusal {
        actor: Actor::ANONYMOUS,
        scope: Scope::Org(org),
        action: "project.create",
        target: ("path", None),
        code: Code::TokenMissing,
    };
    pg::refuse(world.db(), refusal, &origin).await.unwrap();
    (owner, org)
}

async fn verify(world: &World, org: OrgId) -> AuditVerification {
    let verifier = AuditVerifier::new(world.db().clone());
    let all = verifier.verify_all().await.unwrap();
    let one = verifier.verify(Some(org)).await.unwrap();
    assert_eq!(all.ok, one.ok, "both ways of asking agree: {all:?} {one:?}");
    one
}

async fn export(world: &World, org: OrgId) -> String {
    let chunks: Vec<bytes::Bytes> = audit_export(world.db().clone(), Some(org)).try_collect().await.unwrap();
    String::from_utf8(chunks.concat()).unwrap()
}

fn verify_export(text: &str) -> Result<Verified, ExportFault> {
    let mut verifier = ExportVerifier::default();
    text.lines().try_for_each(|line| verifier.line(line))?;
    verifier.finish()
}

#[tokio::test]
async fn a_trail_as_it_was_written_verifies_online_and_as_an_export() {
    let world = World::new().await;
    let (_, org) = busy(&world).await;
    let found = verify(&world, org).await;
    assert!(found.ok, "{found:?}");
    assert_eq!(found.rows, 6);
    assert_eq!(verify_export(&export(&world, org).await), Ok(Verified { chains: 1, rows: 6 }));
}

/// A connection that has put off the habit of not writing: rights must do without it.
async fn writable(world: &World, role: Roles) -> pg::Connection {
    let mut conn = world.test.conn(role).await;
    sqlx::query("SET default_transaction_read_only = off").execute(&mut conn).await.unwrap();
    conn
}

#[tokio::test]
async fn no_service_role_and_not_even_the_owner_can_change_what_was_written() {
    let world = World::new().await;
    let (_, org) = busy(&world).await;
    for role in [Roles::App, Roles::System, Roles::Owner] {
        for sql in [
            "UPDATE audit_logs SET action = 'nothing'",
            "DELETE FROM audit_logs",
            "TRUNCATE audit_logs",
            "INSERT INTO audit_chains VALUES (gen_random_uuid(), 1, '')",
        ] {
            if matches!(role, Roles::Owner) && sql.contains("audit_chains") {
                continue; // the owner runs audit_append
            }
            let mut conn = writable(&world, role).await;
            let refused = sqlx::query(sql).execute(&mut conn).await;
            let code = refused
                .err()
                .and_then(|e| e.as_database_error().and_then(|d| d.code().map(|c| c.to_string())));
            assert_eq!(code.as_deref(), Some("42501"), "{role:?}: {sql}");
        }
    }
    let direct = "INSERT INTO audit_logs SELECT * FROM audit_logs LIMIT 1";
    for role in [Roles::App, Roles::System] {
        assert!(sqlx::query(direct).execute(&mut writable(&world, role).await).await.is_err(), "{role:?}");
    }
    assert!(verify(&world, org).await.ok);
}

#[tokio::test]
async fn a_byte_flipped_by_a_superuser_is_found_and_named() {
    let columns = [
        "action = 'project.creatf'",
        "at = at + interval '1 microsecond'",
        "actor_role = 'org_admin'",
        "target_id = overlay(target_id PLACING 'X' FROM 1)",
        "after_digest = set_byte(after_digest, 0, get_byte(after_digest, 0) # 1)",
        "hash = set_byte(hash, 31, get_byte(hash, 31) # 1)",
        "source_ip = '10.0.0.1'",
        "correlation_id = gen_random_uuid()",
    ];
    for change in columns {
        let world = World::new().await;
        let (_, org) = busy(&world).await;
        let sql = format!("UPDATE audit_logs SET {change} WHERE org_id = '{}' AND seq = 3", org.uuid());
        assert_eq!(world.tamper(&sql).await, 1);
        let found = verify(&world, org).await;
        let fault = found.faults.first().unwrap_or_else(|| panic!("{change} was not found"));
        assert_eq!((fault.seq, fault.reason, found.rows), (3, FaultReason::Changed, 2), "{change}");
        let exported = verify_export(&export(&world, org).await).unwrap_err();
        assert_eq!(exported, ExportFault::Chain(fault.clone()), "{change}");
    }
}

#[tokio::test]
async fn removed_inserted_and_cut_off_rows_are_found() {
    let cases = [
        ("DELETE FROM audit_logs WHERE org_id = $org AND seq = 2", 2, FaultReason::Removed),
        ("DELETE FROM audit_logs WHERE org_id = $org AND seq = 6", 6, FaultReason::Removed),
        ("DELETE FROM audit_logs WHERE org_id = $org", 1, FaultReason::Removed),
        ("DELETE FROM audit_chains WHERE org_id = $org", 1, FaultReason::Inserted),
        ("UPDATE audit_chains SET seq = seq - 1 WHERE org_id = $org", 5, FaultReason::HeadMismatch),
        (
            "UPDATE audit_chains SET seq = 5, hash = (SELECT hash FROM audit_logs WHERE org_id = $org AND seq = 5)
             WHERE org_id = $org",
            6,
            FaultReason::Inserted,
        ),
        (
            "UPDATE audit_chains SET hash = set_byte(hash, 0, get_byte(hash, 0) # 1) WHERE org_id = $org",
            6,
            FaultReason::HeadMismatch,
        ),
        ("UPDATE audit_logs SET seq = 0 WHERE org_id = $org AND seq = 1", 0, FaultReason::Inserted),
    ];
    for (sql, seq, reason) in cases {
        let world = World::new().await;
        let (_, org) = busy(&world).await;
        world.tamper(&sql.replace("$org", &format!("'{}'", org.uuid()))).await;
        let found = verify(&world, org).await;
        let named: Vec<_> = found.faults.iter().map(|f| (f.seq, f.reason)).collect();
        assert_eq!(named, [(seq, reason)], "{sql}: {found:?}");
    }
}
