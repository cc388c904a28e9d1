//! Principals as they are remembered between requests: for three seconds at most.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use chrono::{DateTime, TimeDelta, Utc};
use endpoint::{Caller, Grants, OrgGrant};
use kernel::{
    Role,
    ids::{OrgId, ProjectId, SessionId, UserId},
};
use quick_cache::sync::Cache;
use uuid::Uuid;

use super::store::{PrincipalRow, ServiceAccountRow};

const REMEMBERED_FOR: TimeDelta = TimeDelta::seconds(3);
const MOST_REMEMBERED: usize = 20_000;

/// Something read from the database and when. A clock that was set back makes it old, not eternal.
pub(super) struct Dated<T> {
    pub at: DateTime<Utc>,
    pub value: T,
}

impl<T> Dated<T> {
    pub fn is_fresh(&self, now: DateTime<Utc>) -> bool {
        self.at <= now && now - self.at < REMEMBERED_FOR
    }
}

/// A person in a session.
pub(super) struct Person {
    pub user: Uuid,
    pub session: Uuid,
    pub subject: String,
    pub revoked: bool,
    pub expires_at: DateTime<Utc>,
    pub last_seen_at: DateTime<Utc>,
    /// Whether somebody took it upon themselves to note that the session is in use.
    pub noting: AtomicBool,
    pub caller: Caller,
}

impl Person {
    pub fn from_row(row: PrincipalRow) -> Self {
        let orgs = row.org_ids.iter().zip(&row.org_roles).zip(&row.org_suspended);
        let orgs = orgs.filter_map(|((id, role), suspended)| {
            Some((OrgId::from(*id), OrgGrant { role: org_role(role)?, suspended: *suspended }))
        });
        let projects = row.project_ids.iter().zip(&row.project_roles);
        let grants = Grants {
            platform: row.platform_roles.iter().filter_map(|r| platform_role(r)).collect(),
            orgs: orgs.collect(),
            projects: projects
                .filter_map(|(id, role)| Some((ProjectId::from(*id), project_role(role)?)))
                .collect(),
        };
        Self {
            user: row.user_id,
            session: row.session_id,
            subject: row.subject,
            revoked: row.revoked,
            expires_at: row.expires_at,
            last_seen_at: row.last_seen_at,
            noting: AtomicBool::new(false),
            caller: Caller::User {
                id: UserId::from(row.user_id),
                session: SessionId::from(row.session_id),
                grants: Arc::new(grants),
            },
        }
    }
}

fn org_role(name: &str) -> Option<Role> {
    Some(match name {
        "owner" => Role::OrgOwner,
        "admin" => Role::OrgAdmin,
        "member" => Role::OrgMember,
        "viewer" => Role::OrgViewer,
        _ => return None,
    })
}

fn project_role(name: &str) -> Option<Role> {
    Some(match name {
        "owner" => Role::ProjectOwner,
        "admin" => Role::ProjectAdmin,
        "member" => Role::ProjectMember,
        "viewer" => Role::ProjectViewer,
        _ => return None,
    })
}

fn platform_role(name: &str) -> Option<Role> {
    [Role::PlatformAdmin, Role::PlatformOps, Role::PlatformAuditor].into_iter().find(|r| r.name() == name)
}

/// What is remembered, and what drops it.
pub(super) struct Remembered {
    people: Cache<[u8; 32], Arc<Dated<Person>>>,
    /// By key.
    machines: Cache<Uuid, Arc<Dated<ServiceAccountRow>>>,
    /// Counts what was dropped, so that a read which began before a change is not remembered after it.
    changes: AtomicU64,
}

impl Remembered {
    pub fn new() -> Self {
        Self {
            people: Cache::new(MOST_REMEMBERED),
            machines: Cache::new(MOST_REMEMBERED),
            changes: AtomicU64::new(0),
        }
    }

    pub fn mark(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    pub fn person(&self, session_key: &[u8; 32], now: DateTime<Utc>) -> Option<Arc<Dated<Person>>> {
        self.people.get(session_key).filter(|p| p.is_fresh(now))
    }

    pub fn machine(&self, key: Uuid, now: DateTime<Utc>) -> Option<Arc<Dated<ServiceAccountRow>>> {
        self.machines.get(&key).filter(|m| m.is_fresh(now))
    }

    pub fn keep_person(&self, mark: u64, session_key: [u8; 32], person: &Arc<Dated<Person>>) {
        self.people.insert(session_key, person.clone());
        if self.mark() != mark {
            self.people.remove(&session_key);
        }
    }

    pub fn keep_machine(&self, mark: u64, key: Uuid, machine: &Arc<Dated<ServiceAccountRow>>) {
        self.machines.insert(key, machine.clone());
        if self.mark() != mark {
            self.machines.remove(&key);
        }
    }

    /// Hears an invalidation key.
    pub fn drop_key(&self, key: &str) {
        let (kind, id) = key.split_once(':').unwrap_or((key, ""));
        let ours = ["*", "user", "session", "org", "project", "sa", "sak"];
        if !ours.contains(&kind) {
            return;
        }
        self.changes.fetch_add(1, Ordering::SeqCst);
        match (kind, Uuid::try_parse(id).ok()) {
            ("user", Some(id)) => self.people.retain(|_, p| p.value.user != id),
            ("session", Some(id)) => self.people.retain(|_, p| p.value.session != id),
            ("sak", Some(id)) => drop(self.machines.remove(&id)),
            ("sa", Some(id)) => self.machines.retain(|_, m| m.value.account_id != id),
            ("project", Some(_)) => {}
            // An organization touches all its members; anything unreadable might mean anybody.
            _ => {
                self.people.clear();
                self.machines.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(user: u128, session: u128) -> Arc<Dated<Person>> {
        let row = PrincipalRow {
            session_id: Uuid::from_u128(session),
            user_id: Uuid::from_u128(user),
            subject: String::new(),
            revoked: false,
            revoked_at: None,
            ended_by_itself: false,
            expires_at: DateTime::UNIX_EPOCH,
            last_seen_at: DateTime::UNIX_EPOCH,
            platform_roles: vec!["platform_ops".into(), "unheard_of".into()],
            org_ids: vec![Uuid::from_u128(1)],
            org_roles: vec!["admin".into()],
            org_suspended: vec![true],
            project_ids: vec![Uuid::from_u128(2)],
            project_roles: vec!["viewer".into()],
        };
        Arc::new(Dated { at: DateTime::UNIX_EPOCH, value: Person::from_row(row) })
    }

    #[test]
    fn roles_are_read_and_unknown_ones_grant_nothing() {
        let person = person(1, 1);
        let Caller::User { grants, .. } = &person.value.caller else { panic!("a person is a user") };
        assert_eq!(grants.platform, [Role::PlatformOps]);
        assert_eq!(
            grants.orgs[&OrgId::from(Uuid::from_u128(1))],
            OrgGrant { role: Role::OrgAdmin, suspended: true }
        );
        assert_eq!(grants.projects[&ProjectId::from(Uuid::from_u128(2))], Role::ProjectViewer);
    }

    #[test]
    fn an_invalidation_drops_whom_it_names_and_an_organization_drops_all() {
        let now = DateTime::UNIX_EPOCH;
        let remembered = Remembered::new();
        let fill = || {
            for n in 1..=3u8 {
                remembered.keep_person(remembered.mark(), [n; 32], &person(n.into(), 100 + u128::from(n)));
            }
        };
        let left = || (1..=3u8).filter(|n| remembered.person(&[*n; 32], now).is_some()).count();
        for (key, expected) in [
            (format!("user:{}", Uuid::from_u128(1)), 2),
            (format!("session:{}", Uuid::from_u128(102)), 2),
            (format!("org:{}", Uuid::from_u128(9)), 0),
            ("*".to_owned(), 0),
            ("user:nonsense".to_owned(), 0),
            ("policy:x".to_owned(), 3),
        ] {
            fill();
            remembered.drop_key(&key);
            assert_eq!(left(), expected, "{key}");
        }
    }

    #[test]
    fn a_read_that_began_before_a_change_is_not_remembered() {
        let remembered = Remembered::new();
        let mark = remembered.mark();
        remembered.drop_key("*");
        remembered.keep_person(mark, [1; 32], &person(1, 1));
        assert!(remembered.person(&[1; 32], DateTime::UNIX_EPOCH).is_none());
    }

    #[test]
    fn nothing_is_fresh_for_longer_than_three_seconds_nor_before_its_time() {
        let dated = person(1, 1);
        let at = |ms| DateTime::UNIX_EPOCH + TimeDelta::milliseconds(ms);
        assert!(dated.is_fresh(at(0)) && dated.is_fresh(at(2999)));
        assert!(!dated.is_fresh(at(3000)) && !dated.is_fresh(at(-1)));
    }
}
