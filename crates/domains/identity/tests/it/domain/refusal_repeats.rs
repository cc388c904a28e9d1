//! Whoever is refused the same thing over and over does not fill the audit trail, and no refusal is lost from it.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use identity::service::audit::AuditVerifier;
use kernel::{
    Code, CorrelationId, ManualClock,
    ids::{OrgId, ProjectId, UserId},
};
use pg::{Actor, ActorKind, Origin, Refusal, Roles, Scope};
use testkit::TestDb;

use super::world::World;

/// A minute that has just begun.
fn minute() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

async fn world() -> (World, Arc<ManualClock>) {
    let clock = ManualClock::starting_at(minute());
    let ambient = clock.ambient();
    (World { test: TestDb::create_with(ambient).await }, clock)
}

struct Attempt {
    who: UserId,
    scope: Scope,
    action: &'static str,
    code: Code,
}

async fn refuse(world: &World, attempt: &Attempt, target: &str) {
    let actor = Actor { kind: ActorKind::User, id: Some(attempt.who.uuid()), role: "viewer" };
    let mut origin = Origin::internal(CorrelationId(world.db().ambient().uuid()));
    origin.source_ip = Some("192.0.2.7".to_owned());
    let refusal = Refusal {
        actor,
        scope: attempt.scope,
        action: attempt.action,
        target: ("path", Some(target.to_owned())),
        code: attempt.code,
    };
    pg::refuse(world.db(), refusal, &origin).await.unwrap();
}

/// The refusals in the trail of the organization, oldest first: action, code, target, repeats.
async fn rows(world: &World, org: OrgId) -> Vec<(String, String, Option<String>, Option<i64>)> {
    let mut admin = world.test.conn(Roles::Admin).await;
    sqlx::query_as(
        "SELECT action, code, target_id, repeats FROM audit_logs WHERE org_id = $1 AND result = 'refused' ORDER BY seq",
    )
    .bind(org.uuid())
    .fetch_all(&mut admin)
    .await
    .unwrap()
}

fn row(
    action: &str,
    code: Code,
    target: &str,
    repeats: Option<i64>,
) -> (String, String, Option<String>, Option<i64>) {
    (action.to_owned(), code.as_str().to_owned(), Some(target.to_owned()), repeats)
}

#[tokio::test]
async fn repeats_within_a_minute_are_one_row_with_their_count_and_the_chain_verifies() {
    let (world, clock) = world().await;
    let who = world.user("val").await;
    let org = world.org("acme", who).await.id;
    let attempt = Attempt {
        who,
        scope: Scope::Org(org),
        action: "project.create",
        code: Code::InsufficientPermissions,
    };
    for n in 0..40 {
        refuse(&world, &attempt, &format!("p{n}")).await;
        clock.advance(TimeDelta::seconds(1));
    }
    let first = row("project.create", Code::InsufficientPermissions, "p0", None);
    assert_eq!(rows(&world, org).await, std::slice::from_ref(&first), "the first is there at once");
    assert_eq!(pg::refusal_windows_close(world.db()).await.unwrap(), 0, "the minute is not over");
    clock.advance(TimeDelta::seconds(20));
    assert_eq!(pg::refusal_windows_close(world.db()).await.unwrap(), 1);
    let rest = row("project.create", Code::InsufficientPermissions, "p39", Some(39));
    assert_eq!(rows(&world, org).await, [first, rest]);
    assert_eq!(pg::refusal_windows_close(world.db()).await.unwrap(), 0, "each minute is told once");
    assert!(AuditVerifier::new(world.db().clone()).verify(Some(org)).await.unwrap().ok);
    // The count is part of what the chain proves.
    let sql = format!("UPDATE audit_logs SET repeats = 1 WHERE org_id = '{}' AND repeats = 39", org.uuid());
    assert_eq!(world.tamper(&sql).await, 1);
    assert!(!AuditVerifier::new(world.db().clone()).verify(Some(org)).await.unwrap().ok);
}

#[tokio::test]
async fn another_person_code_action_project_or_minute_gets_a_row_of_its_own() {
    let (world, clock) = world().await;
    let (val, ada) = (world.user("val").await, world.user("ada").await);
    let org = world.org("acme", val).await.id;
    let project: ProjectId = world.project(val, org, "p").await.id;
    let denied = Code::InsufficientPermissions;
    let attempts = [
        Attempt { who: val, scope: Scope::Org(org), action: "project.create", code: denied },
        Attempt { who: ada, scope: Scope::Org(org), action: "project.create", code: denied },
        Attempt { who: val, scope: Scope::Org(org), action: "project.create", code: Code::AlreadyExists },
        Attempt { who: val, scope: Scope::Org(org), action: "project.delete", code: denied },
        Attempt { who: val, scope: Scope::Project(org, project), action: "project.create", code: denied },
    ];
    for attempt in &attempts {
        refuse(&world, attempt, "x").await;
    }
    clock.advance(TimeDelta::seconds(60));
    refuse(&world, &attempts[0], "x").await;
    assert_eq!(rows(&world, org).await.len(), attempts.len() + 1);
    clock.advance(TimeDelta::seconds(60));
    pg::refusal_windows_close(world.db()).await.unwrap();
    assert_eq!(rows(&world, org).await.len(), attempts.len() + 1, "what was not repeated adds no row");
}

#[tokio::test]
async fn refusals_that_race_with_each_other_and_with_the_closing_are_all_counted() {
    let (world, clock) = world().await;
    let who = world.user("val").await;
    let org = world.org("acme", who).await.id;
    let (world, refused) = (Arc::new(world), 120);
    let attempts = (0..refused).map(|n| {
        let (world, clock) = (world.clone(), clock.clone());
        tokio::spawn(async move {
            let attempt =
                Attempt { who, scope: Scope::Org(org), action: "project.create", code: Code::AlreadyExists };
            refuse(&world, &attempt, "x").await;
            clock.advance(TimeDelta::milliseconds(1500));
            if n % 10 == 0 {
                pg::refusal_windows_close(world.db()).await.unwrap();
            }
        })
    });
    for attempt in attempts.collect::<Vec<_>>() {
        attempt.await.unwrap();
    }
    clock.advance(TimeDelta::seconds(60));
    pg::refusal_windows_close(world.db()).await.unwrap();
    let told: i64 = rows(&world, org).await.iter().map(|(.., repeats)| repeats.unwrap_or(1)).sum();
    assert_eq!(told, refused);
    assert!(AuditVerifier::new(world.db().clone()).verify(Some(org)).await.unwrap().ok);
}
