//! Every table says whose data it holds, and the database holds it to that.

use anyhow::Context;
use pg::Roles;
use sqlx::{FromRow, PgConnection};

use super::{Finding, Gate};
use crate::schema;
use crate::tree::Tree;

const CLASSES: [&str; 3] = ["tenant:", "person:", "platform:"];
const SERVICE_ROLES: [&str; 2] = ["gpuaas_app", "gpuaas_system"];
/// The one tenant table without org_id: its own id is the organization.
const ORGANIZATIONS: &str = "organizations";

/// What the catalog says of one table.
#[derive(FromRow)]
struct Table {
    name: String,
    comment: String,
    has_org_id: bool,
    row_security: bool,
    app_policies: i64,
    open_policies: Vec<String>,
    public_grants: bool,
    /// `role PRIVILEGE` of each service role that can write.
    write_grants: Vec<String>,
    /// Which of UPDATE, DELETE and TRUNCATE no trigger refuses.
    unguarded: Vec<String>,
}

/// Bits of `tgtype`: BEFORE 2, DELETE 8, UPDATE 16, TRUNCATE 32.
const TABLES: &str = "
    SELECT c.relname::text AS name,
        coalesce(obj_description(c.oid, 'pg_class'), '') AS comment,
        EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'org_id'
            AND a.atttypid = 'uuid'::regtype AND NOT a.attisdropped) AS has_org_id,
        c.relrowsecurity AS row_security,
        (SELECT count(*) FROM pg_policy p WHERE p.polrelid = c.oid
            AND 'gpuaas_app'::regrole::oid = ANY (p.polroles)) AS app_policies,
        ARRAY(SELECT p.polname::text FROM pg_policy p WHERE p.polrelid = c.oid
            AND (0::oid = ANY (p.polroles) OR ('gpuaas_app'::regrole::oid = ANY (p.polroles)
                AND 'true' IN (pg_get_expr(p.polqual, c.oid), pg_get_expr(p.polwithcheck, c.oid))))) AS open_policies,
        EXISTS (SELECT FROM aclexplode(c.relacl) g WHERE g.grantee = 0) AS public_grants,
        ARRAY(SELECT r || ' ' || p FROM unnest($1::text[]) r, unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) p
            WHERE has_table_privilege(r, c.oid, p)
                OR (p IN ('INSERT', 'UPDATE') AND has_any_column_privilege(r, c.oid, p))) AS write_grants,
        ARRAY(SELECT e.name FROM (VALUES ('UPDATE', 16), ('DELETE', 8), ('TRUNCATE', 32)) e (name, bit)
            WHERE NOT EXISTS (SELECT FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid
                WHERE t.tgrelid = c.oid AND f.proname = 'refuse_change' AND t.tgenabled IN ('O', 'A')
                    AND t.tgtype & 2 <> 0 AND t.tgtype & e.bit <> 0
                    AND t.tgqual IS NULL AND cardinality(t.tgattr::int2[]) = 0)) AS unguarded
    FROM pg_class c
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> '_sqlx_migrations'
    ORDER BY c.relname";

/// A view works with its owner's rights, past row-level security, unless it is told otherwise.
const VIEWS: &str = "
    SELECT c.relname::text FROM pg_class c
    WHERE c.relnamespace = 'public'::regnamespace AND (c.relkind = 'm' OR (c.relkind = 'v'
        AND NOT coalesce(c.reloptions && ARRAY['security_invoker=true', 'security_invoker=on'], false)))";

pub struct TableClasses;

impl Gate for TableClasses {
    fn name(&self) -> &'static str {
        "table-classes"
    }

    fn holds(&self) -> &'static str {
        "every table is tenant:, person: or platform:, with the row security, grants and triggers of its class"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        schema::with_migrated(tree, async |database| {
            let mut connection = database.open(Roles::Admin).await?;
            tables_check(&mut connection).await
        })
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        examples::examples()
    }
}

async fn tables_check(connection: &mut PgConnection) -> anyhow::Result<Vec<Finding>> {
    let tables: Vec<Table> = sqlx::query_as(TABLES)
        .bind(SERVICE_ROLES.map(str::to_owned).to_vec())
        .fetch_all(&mut *connection)
        .await
        .context("read the catalog")?;
    let mut found = Vec::new();
    for table in &tables {
        found.extend(problems(table).into_iter().map(|message| Finding::new(&table.name, message)));
    }
    let views: Vec<String> =
        sqlx::query_scalar(VIEWS).fetch_all(connection).await.context("read the catalog")?;
    for view in views {
        let message = "is a view with its owner's rights: create it WITH (security_invoker = true)";
        found.push(Finding::new(view, message));
    }
    Ok(found)
}

fn problems(table: &Table) -> Vec<String> {
    let mut out = Vec::new();
    let class = CLASSES.into_iter().find(|class| table.comment.starts_with(class));
    if class.is_none() {
        out.push("has no comment that starts with its class: tenant:, person: or platform:".to_owned());
    }
    if matches!(class, Some("tenant:" | "person:")) {
        if class == Some("tenant:") && !table.has_org_id && table.name != ORGANIZATIONS {
            out.push("is a tenant table without a column org_id of type uuid".to_owned());
        }
        if !table.row_security {
            out.push("does not ENABLE ROW LEVEL SECURITY".to_owned());
        }
        if table.app_policies == 0 {
            out.push("has no policy for gpuaas_app".to_owned());
        }
        for policy in &table.open_policies {
            out.push(format!(
                "policy {policy} lets requests see every row: name the organization or the person"
            ));
        }
    }
    if table.public_grants {
        out.push("is granted to PUBLIC".to_owned());
    }
    if table.comment.contains("append-only") {
        for grant in &table.write_grants {
            out.push(format!("is append-only but lets {grant}: write through a function"));
        }
        for event in &table.unguarded {
            out.push(format!("is append-only but no BEFORE {event} trigger calls refuse_change()"));
        }
    }
    out
}

#[cfg(test)]
mod examples {
    use crate::gates::tests::Examples;
    use crate::tree::FixtureTree;

    const FIRST: &str = "migrations/0001_a.sql";
    const SECOND: &str = "migrations/0002_b.sql";
    const GOOD: &str = "
        CREATE TABLE organizations (id uuid);
        COMMENT ON TABLE organizations IS 'tenant: its own id';
        CREATE TABLE things (org_id uuid);
        COMMENT ON TABLE things IS 'tenant: things';
        CREATE TABLE people (id uuid);
        COMMENT ON TABLE people IS 'person: somebody';
        CREATE TABLE trail (org_id uuid, note text);
        COMMENT ON TABLE trail IS 'tenant: append-only';
        CREATE TABLE settings (id int);
        COMMENT ON TABLE settings IS 'platform: settings';
        ALTER TABLE organizations ENABLE ROW LEVEL SECURITY;
        ALTER TABLE things ENABLE ROW LEVEL SECURITY;
        ALTER TABLE people ENABLE ROW LEVEL SECURITY;
        ALTER TABLE trail ENABLE ROW LEVEL SECURITY;
        CREATE POLICY own ON organizations TO gpuaas_app USING (id IS NOT NULL);
        CREATE POLICY own ON things TO gpuaas_app USING (org_id IS NOT NULL);
        CREATE POLICY own ON people TO gpuaas_app USING (id IS NOT NULL);
        CREATE POLICY own ON trail TO gpuaas_app USING (org_id IS NOT NULL);
        CREATE POLICY system ON things TO gpuaas_system USING (true);
        GRANT SELECT, INSERT, UPDATE, DELETE ON things TO gpuaas_app;
        GRANT SELECT ON trail TO gpuaas_app, gpuaas_system;
        CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
        CREATE TRIGGER a BEFORE UPDATE OR DELETE ON trail FOR EACH ROW EXECUTE FUNCTION refuse_change();
        CREATE TRIGGER b BEFORE TRUNCATE ON trail FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
        CREATE VIEW safe WITH (security_invoker = true) AS SELECT * FROM things;";

    pub(super) fn examples() -> Examples {
        let good = FixtureTree::new(&[(FIRST, GOOD), (SECOND, "SELECT 1;")]);
        let bad: [(&str, &str, &str); 15] = [
            ("no comment", "has no comment", "CREATE TABLE x (id int);"),
            ("unknown class", "things: has no comment", "COMMENT ON TABLE things IS 'shared: things';"),
            ("tenant without org", "without a column org_id", "ALTER TABLE things RENAME org_id TO org;"),
            (
                "tenant without row security",
                "things: does not ENABLE",
                "ALTER TABLE things DISABLE ROW LEVEL SECURITY;",
            ),
            ("tenant without policy", "things: has no policy", "DROP POLICY own ON things;"),
            (
                "person without row security",
                "people: does not ENABLE",
                "ALTER TABLE people DISABLE ROW LEVEL SECURITY;",
            ),
            (
                "policy that lets all pass",
                "policy all_rows",
                "CREATE POLICY all_rows ON things TO gpuaas_app USING (true);",
            ),
            (
                "policy for everyone",
                "policy anyone",
                "CREATE POLICY anyone ON people USING (id IS NOT NULL);",
            ),
            ("granted to all", "settings: is granted to PUBLIC", "GRANT SELECT ON settings TO PUBLIC;"),
            ("append-only with a grant", "gpuaas_app INSERT", "GRANT INSERT ON trail TO gpuaas_app;"),
            (
                "append-only with a column grant",
                "gpuaas_system UPDATE",
                "GRANT UPDATE (note) ON trail TO gpuaas_system;",
            ),
            ("append-only without trigger", "no BEFORE DELETE trigger", "DROP TRIGGER a ON trail;"),
            ("append-only that can be emptied", "no BEFORE TRUNCATE", "ALTER TABLE trail DISABLE TRIGGER b;"),
            ("view past row security", "leak: is a view", "CREATE VIEW leak AS SELECT * FROM things;"),
            ("broken migration", "apply the migrations", "CREATE TABLE;"),
        ];
        bad.into_iter().fold(Examples::good(good), |examples, (name, says, sql)| {
            examples.bad(name, says, |tree| tree.with(SECOND, sql))
        })
    }
}
