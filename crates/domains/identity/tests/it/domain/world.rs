//! A database with people and organizations in it, and permits to act in them.

use identity::{
    model::{org::Org, project::Project, role::MemberRole},
    service::{orgs::org_create, projects::project_create},
};
use kernel::{
    CorrelationId, Permission, Role,
    ids::{OrgId, UserId},
    text::{Name, Slug},
};
use pg::{Actor, ActorKind, Origin, Permit, Roles, Scope, WriteTx};
use testkit::TestDb;
use uuid::Uuid;

pub struct World {
    pub test: TestDb,
}

impl World {
    pub async fn new() -> Self {
        Self { test: TestDb::create().await }
    }

    pub fn db(&self) -> &pg::Db {
        &self.test.db
    }

    fn origin(&self) -> Origin {
        Origin::internal(CorrelationId(self.db().ambient().uuid()))
    }

    /// The right of a person with `role` to act in `scope`.
    pub fn permit(&self, user: UserId, role: Role, scope: Scope, permission: Permission) -> Permit {
        let actor = Actor { kind: ActorKind::User, id: Some(user.uuid()), role: role.name() };
        let granted = role.permissions().authorize(permission).expect("the role holds the permission");
        Permit::granted(actor, scope, self.origin(), granted)
    }

    pub async fn write_in(&self, user: UserId, org: OrgId, action: &'static str) -> WriteTx {
        let permit = self.permit(user, Role::OrgOwner, Scope::Org(org), Permission::MemberManage);
        self.db().write(permit, action).await.expect("begin")
    }

    pub async fn read_in(&self, user: UserId, org: OrgId) -> pg::ReadTx {
        let permit = self.permit(user, Role::OrgOwner, Scope::Org(org), Permission::OrgRead);
        self.db().read(&permit).await.expect("read")
    }

    pub async fn user(&self, name: &str) -> UserId {
        let id: UserId = self.db().ambient().id();
        let mut admin = self.test.conn(Roles::Admin).await;
        sqlx::query(
            "INSERT INTO users (id, issuer, subject, email, name, created_at, updated_at)
             VALUES ($1, 'test', $2, $3, $2, now(), now())",
        )
        .bind(id.uuid())
        .bind(name)
        .bind(format!("{name}@example.org"))
        .execute(&mut admin)
        .await
        .expect("insert a user");
        id
    }

    /// An enterprise organization, made by a platform administrator for `owner`.
    pub async fn org(&self, slug: &str, owner: UserId) -> Org {
        let permit = self.permit(owner, Role::PlatformAdmin, Scope::Platform, Permission::PlatformOrgManage);
        let mut tx = self.db().write(permit, "org.create").await.expect("begin");
        let (name, slug) = (Name::parse(slug).unwrap(), Slug::parse(slug).unwrap());
        let org = org_create(&mut tx, name, slug, owner).await.expect("create an organization");
        tx.commit(None).await.expect("commit");
        org
    }

    pub async fn project(&self, owner: UserId, org: OrgId, slug: &str) -> Project {
        let mut tx = self.write_in(owner, org, "project.create").await;
        let (name, slug) = (Name::parse(slug).unwrap(), Slug::parse(slug).unwrap());
        let project = project_create(&mut tx, org, name, slug).await.expect("create a project");
        tx.commit(None).await.expect("commit");
        project
    }

    pub async fn member(&self, org: OrgId, user: UserId, role: MemberRole) {
        let mut admin = self.test.conn(Roles::Admin).await;
        sqlx::query(
            "INSERT INTO tenant_memberships (org_id, user_id, role, created_at, updated_at) VALUES ($1, $2, $3, now(), now())",
        )
        .bind(org.uuid())
        .bind(user.uuid())
        .bind(role.name())
        .execute(&mut admin)
        .await
        .expect("insert a member");
    }

    /// Runs SQL as the superuser, past every trigger.
    pub async fn tamper(&self, sql: &str) -> u64 {
        let mut admin = self.test.conn(Roles::Admin).await;
        sqlx::query("SET session_replication_role = replica").execute(&mut admin).await.expect("no triggers");
        sqlx::query(sqlx::AssertSqlSafe(sql.to_owned()))
            .execute(&mut admin)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
            .rows_affected()
    }

    pub async fn count(&self, sql: &str, id: Uuid) -> i64 {
        let mut admin = self.test.conn(Roles::Admin).await;
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned()))
            .bind(id)
            .fetch_one(&mut admin)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }
}
