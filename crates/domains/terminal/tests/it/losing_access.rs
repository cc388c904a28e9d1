//! Who may not enter a machine any more loses the shell that runs there: the rule for all sessions at once, in SQL, is the rule
//! by which a terminal may be open.

use std::{fmt::Write as _, sync::Arc};

use endpoint::{Declaration, Services, SignIn};
use identity::{
    api::{MemberRole, PlatformRole, ServiceAccountRole},
    authn::{Authn, Places},
};
use kernel::{Failure, Secret};
use pg::Permit;
use terminal::service::upkeep::sessions_end_lost;
use testkit::TestDb;
use testworld::{Tenant, Tenants};
use uuid::Uuid;

use crate::kit::Kit;

#[derive(Clone, Copy, Debug)]
enum Who {
    User { platform: Option<PlatformRole>, org: Option<MemberRole>, project: Option<MemberRole> },
    ServiceAccount { role: Option<ServiceAccountRole>, is_disabled: bool },
}

/// What somebody is to a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Relation {
    Creator,
    Granted,
    None,
}

#[derive(Debug)]
struct Case {
    number: u128,
    who: Who,
    relation: Relation,
    state: &'static str,
    /// Its organization is suspended.
    is_suspended: bool,
}

/// Kinds of rows; the rows of a case have its number.
const PRINCIPAL: u128 = 1;
const SIGN_IN: u128 = 2;
const MACHINE: u128 = 3;
const SESSION: u128 = 4;
const STRANGER: u128 = 5;

fn everybody() -> Vec<Who> {
    let members: Vec<Option<MemberRole>> =
        std::iter::once(None).chain(MemberRole::ALL.into_iter().map(Some)).collect();
    let mut all = Vec::new();
    for org in &members {
        all.extend(members.iter().map(|project| Who::User { platform: None, org: *org, project: *project }));
    }
    all.extend(PlatformRole::ALL.into_iter().map(|role| Who::User {
        platform: Some(role),
        org: None,
        project: None,
    }));
    for is_disabled in [false, true] {
        let roles = std::iter::once(None).chain(ServiceAccountRole::ALL.into_iter().map(Some));
        all.extend(roles.map(|role| Who::ServiceAccount { role, is_disabled }));
    }
    all
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for who in everybody() {
        for relation in [Relation::Creator, Relation::Granted, Relation::None] {
            if relation == Relation::Granted && matches!(who, Who::ServiceAccount { .. }) {
                continue;
            }
            for state in ["active", "releasing"] {
                for is_suspended in [false, true] {
                    cases.push(Case { number: cases.len() as u128, who, relation, state, is_suspended });
                }
            }
        }
    }
    cases
}

impl Case {
    fn id(&self, kind: u128) -> Uuid {
        Uuid::from_u128(kind << 64 | self.number)
    }

    fn sign_in(&self) -> SignIn {
        match self.who {
            Who::User { .. } => SignIn::User { session: self.id(SIGN_IN).into() },
            Who::ServiceAccount { .. } => SignIn::ServiceAccount { key: self.id(SIGN_IN).into() },
        }
    }

    /// Somebody with a machine, or with somebody else's, and a session there that was attached.
    fn insert(&self, Tenant { org, project, .. }: Tenant) -> String {
        let (org, project) = (org.uuid(), project.uuid());
        let (principal, sign_in) = (self.id(PRINCIPAL), self.id(SIGN_IN));
        let mut sql = String::new();
        let mut add = |text: String| writeln!(sql, "INSERT INTO {text};").unwrap();
        let kind = match self.who {
            Who::User { platform, org: in_org, project: in_project } => {
                add(format!(
                    "users (id, issuer, subject, name, created_at, updated_at)
                     VALUES ('{principal}', 'https://idp.test', '{principal}', 'x', now(), now())"
                ));
                add(format!(
                    "account_sessions (id, user_id, issuer, issuer_sid, created_at, last_seen_at, expires_at)
                     VALUES ('{sign_in}', '{principal}', 'https://idp.test', '{sign_in}', now(), now(), now() + interval '1 hour')"
                ));
                if let Some(role) = platform {
                    let role = role.name();
                    add(format!(
                        "platform_bindings (user_id, role, created_at) VALUES ('{principal}', '{role}', now())"
                    ));
                }
                let columns = "user_id, role, created_at, updated_at";
                if let Some(role) = in_org {
                    let values = format!("'{principal}', '{}', now(), now()", role.name());
                    add(format!("tenant_memberships (org_id, {columns}) VALUES ('{org}', {values})"));
                }
                if let Some(role) = in_project {
                    let values = format!("'{principal}', '{}', now(), now()", role.name());
                    add(format!(
                        "project_memberships (org_id, project_id, {columns}) VALUES ('{org}', '{project}', {values})"
                    ));
                }
                "user"
            }
            Who::ServiceAccount { role, is_disabled } => {
                let role = role.map_or_else(|| "NULL".to_owned(), |role| format!("'{}'", role.name()));
                let disabled = if is_disabled { "now()" } else { "NULL" };
                add(format!(
                    "service_accounts (id, org_id, project_id, name, role, disabled_at, created_at, updated_at)
                     VALUES ('{principal}', '{org}', '{project}', '{principal}', {role}, {disabled}, now(), now())"
                ));
                add(format!(
                    "service_account_keys (id, org_id, service_account_id, secret_hash, created_at)
                     VALUES ('{sign_in}', '{org}', '{principal}', '', now())"
                ));
                "service_account"
            }
        };
        let machine = self.id(MACHINE);
        let (creator_kind, creator) = match self.relation {
            Relation::Creator => (kind, principal),
            Relation::Granted | Relation::None => ("user", self.id(STRANGER)),
        };
        let columns = "id, org_id, project_id, name, creator_kind, creator_id, sku, shape, region, gpus, profile, price_unit, \
             unit_price_minor, currency, isolation_model, node_id, slot_ids, username, uid, ssh_host, ssh_port, work_order, state, \
             state_changed_at, active_at, meter_opened_at, created_at, updated_at";
        let (state, profile) = (self.state, "{\"name\": \"1\", \"gpus\": 1}");
        add(format!(
            "allocations ({columns}) VALUES ('{machine}', '{org}', '{project}', 'm', '{creator_kind}', '{creator}', 'sku', 'gpu_slice',
                 'r', 1, '{profile}', 'gpu_hour', 1, 'USD', 'user-revoke', gen_random_uuid(), '{{}}', 'u', 20001, 'h', 22, '',
                 '{state}', now(), now(), now(), now(), now())"
        ));
        if self.relation == Relation::Granted {
            add(format!(
                "allocation_access_grants (allocation_id, user_id, org_id, granted_by, granted_at)
                 VALUES ('{machine}', '{principal}', '{org}', '{creator}', now())"
            ));
        }
        let session = self.id(SESSION);
        add(format!(
            "terminal_sessions (id, org_id, project_id, allocation_id, node_id, principal_kind, principal_id, created_at, expires_at,
                 attachments, end_grant)
             VALUES ('{session}', '{org}', '{project}', '{machine}', gen_random_uuid(), '{kind}', '{principal}', now(),
                 now() + interval '1 hour', 1, '')"
        ));
        sql
    }
}

/// As a gateway asks for an open terminal.
async fn may_enter(
    services: &Services,
    entering: &Declaration,
    case: &Case,
    place: Tenant,
    permit: &Permit,
) -> bool {
    let path = [("project_id".to_owned(), place.project.to_string())];
    let asked = async {
        let principal = services.still_allowed(entering, case.sign_in(), &path).await?;
        assert_eq!(principal.uuid(), case.id(PRINCIPAL));
        let mut read = services.db.read(permit).await?;
        capacity::api::entry(read.conn(), place.project, case.id(MACHINE).into(), principal).await
    };
    match asked.await {
        Ok(_) => true,
        Err(Failure::Problem(_)) => false,
        Err(failure) => panic!("{case:?}: {failure:?}"),
    }
}

#[tokio::test]
async fn who_may_not_enter_loses_the_shell_and_who_may_keeps_it() {
    let test = TestDb::create().await;
    let Kit { terminals, policies, .. } = &Kit::start(&test, None).await;
    let tenants = Tenants::new(&test.db);
    let (acme, suspended) = (tenants.tenant("acme").await, tenants.tenant("suspended").await);
    let place = |case: &Case| if case.is_suspended { suspended } else { acme };
    let cases = cases();
    let rows: String = cases.iter().map(|case| case.insert(place(case))).collect();
    let org = suspended.org.uuid();
    test.tamper(&format!(
        "{rows} UPDATE organizations SET suspended_at = now(), suspended_reason = 'test' WHERE id = '{org}'"
    ))
    .await;

    while sessions_end_lost(terminals).await.unwrap() > 0 {}

    let services = Services {
        db: test.db.clone(),
        authenticator: Arc::new(Authn::new(test.db.clone(), Vec::new())),
        directory: Arc::new(Places::new(test.db.clone())),
        policies: Arc::new(policies.clone()),
        answers: Arc::new(trust::Sealer::for_purpose(&Secret::new([7; 32]), b"test").unwrap()),
    };
    let endpoints = terminal::endpoints(terminals);
    let mut declarations = endpoints.iter().map(endpoint::Endpoint::declaration);
    let entering = declarations.find(|one| one.id == "terminal_token_create").unwrap();
    let permit = Permit::system("whether a terminal may stay open", tenants.origin());
    let (mut wrong, mut kept) = (Vec::new(), 0);
    let asked = "SELECT coalesce(string_agg(id::text, ' '), '') FROM terminal_sessions WHERE end_asked_at IS NOT NULL";
    let asked: String = test.one(asked).await;
    for case in &cases {
        let is_lost = asked.contains(&case.id(SESSION).to_string());
        let may_enter = may_enter(&services, entering, case, place(case), &permit).await;
        kept += usize::from(!is_lost);
        if is_lost == may_enter {
            wrong.push((case, is_lost));
        }
    }
    assert!(wrong.is_empty(), "{} of {}, lost: {wrong:#?}", wrong.len(), cases.len());
    assert!(kept > 20 && kept < cases.len() / 2, "{kept} of {} are kept", cases.len());
}
