//! A whole small world: a database, a server, an issuer and people in it.

use serde_json::{Value, json};
use sqlx::Executor as _;

use crate::{Api, Idp, Server, ServerOptions, TestDb, eventually};

pub struct World {
    pub server: Server,
    pub idp: Idp,
    pub db: TestDb,
    /// A platform administrator.
    pub admin: Api,
}

/// Somebody who signed in once.
#[derive(Clone)]
pub struct Person {
    pub name: String,
    pub id: String,
    /// Their personal organization.
    pub org_id: String,
    pub api: Api,
}

impl World {
    pub async fn start() -> Self {
        Self::start_with(ServerOptions::default()).await
    }

    pub async fn start_with(options: ServerOptions) -> Self {
        let db = TestDb::create().await;
        db.lift_rate_limits().await;
        let idp = Idp::start().await;
        let options = ServerOptions { config: idp.options().config + &options.config, ..options };
        let server = Server::start_with(&db, options).await;
        let mut world = Self { admin: server.api(), server, idp, db };
        let root = world.person("root").await;
        world.grant_platform_role(&root, "platform_admin").await;
        world.admin = root.api;
        world
    }

    /// A second replica on the same database, with the same master key and signing keys.
    pub async fn replica(&self) -> Server {
        self.replica_with(ServerOptions::default()).await
    }

    pub async fn replica_with(&self, options: ServerOptions) -> Server {
        let secrets = self.server.dir.path().join("data/secrets");
        let (key, signing) = (secrets.join("master.key"), secrets.join("task-signing"));
        let config = format!(
            "[auth]\nmaster_key_file = \"{}\"\n[trust]\nsigning_dir = \"{}\"\n",
            key.display(),
            signing.display()
        );
        let mut config = config + &self.idp.options().config + &options.config;
        if !config.contains("[objects") {
            let objects = self.server.dir.path().join("data/objects");
            config += &format!("[objects]\ndirectory = \"{}\"\n", objects.display());
        }
        Server::start_with(&self.db, ServerOptions { config, ..options }).await
    }

    /// Signs somebody in for the first time.
    pub async fn person(&self, name: &str) -> Person {
        let api = self.server.api().with_token(self.idp.token(name, "1"));
        let me = api.get("/api/v1/me").await.expect(200);
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let orgs = api.get("/api/v1/orgs").await.expect(200);
        let personal = orgs["items"]
            .as_array()
            .and_then(|o| o.iter().find(|o| o["kind"] == "personal"))
            .expect("a personal org");
        Person { name: name.to_owned(), id: text(&me["id"]), org_id: text(&personal["id"]), api }
    }

    pub async fn grant_platform_role(&self, person: &Person, role: &str) {
        let uuid = person.id.trim_start_matches("user_");
        let sql = format!(
            "INSERT INTO platform_bindings (user_id, role, created_at) VALUES ('{uuid}', '{role}', now())
             ON CONFLICT DO NOTHING;
             SELECT pg_notify('gpuaas_invalidate', '*')"
        );
        let mut conn = self.db.conn(pg::Roles::Admin).await;
        conn.execute(sqlx::AssertSqlSafe(sql)).await.expect("grant a platform role");
        eventually("the role is effective", || async {
            (person.api.get("/api/v1/platform/orgs").await.status == 200).then_some(())
        })
        .await;
    }

    /// An enterprise organization owned by the administrator.
    pub async fn org(&self, slug: &str) -> String {
        let org =
            self.admin.post("/api/v1/platform/orgs", json!({ "name": slug, "slug": slug })).await.expect(201);
        org["id"].as_str().expect("an id").to_owned()
    }

    /// Brings somebody into an organization the way it is done: invited, and accepted.
    pub async fn join(&self, person: &Person, org_id: &str, role: &str) {
        let body = json!({ "email": format!("{}@example.org", person.name), "role": role });
        let made = self.admin.post(&format!("/api/v1/orgs/{org_id}/invitations"), body).await.expect(201);
        let (id, token) = (made["id"].as_str().expect("an id"), &made["token"]);
        let accept =
            person.api.post(&format!("/api/v1/invitations/{id}/accept"), json!({ "token": token })).await;
        assert!(accept.status < 300, "{}", accept.text);
    }

    pub async fn project(&self, org_id: &str, slug: &str) -> String {
        let path = format!("/api/v1/orgs/{org_id}/projects");
        let made = self.admin.post(&path, json!({ "name": slug, "slug": slug })).await.expect(201);
        made["id"].as_str().expect("an id").to_owned()
    }

    /// What a superuser counts, behind everybody's back.
    pub async fn count(&self, sql: &str) -> i64 {
        self.db.one(sql).await
    }
}
