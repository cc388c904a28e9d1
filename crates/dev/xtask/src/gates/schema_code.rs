//! Functions, triggers and views of the database live in `migrations/functions`, one file each, and nowhere else.

use std::collections::BTreeSet;

use pg::Roles;

use super::{Finding, Gate};
use crate::schema::{self, FUNCTIONS, MIGRATIONS, REVISION};
use crate::sql::{self, Statement};
use crate::tree::Tree;

/// Those up to this number made functions themselves, before there were files for them.
const LAST_WITH_FUNCTIONS: &str = "0034";

/// Functions and views of the migrated database that are not of an extension.
const MADE: &str = "
    SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
    UNION SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('v', 'm')
    ORDER BY 1";

/// How many arguments a function has, without those of its answer.
const ARGUMENTS: &str = "
    SELECT p.proname::text, p.pronargs::integer FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e') ORDER BY 1";
/// At most; what is more is one value of a composite type.
pub const MOST_ARGUMENTS: i32 = 8;

/// Functions that only name one statement: they act with the rights of the caller, and nothing in the database calls them.
const STATEMENTS: &str = "
    SELECT p.proname::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
    WHERE p.pronamespace = 'public'::regnamespace AND l.lanname = 'sql' AND NOT p.prosecdef AND p.pronargs <= $1
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.refobjid = p.oid AND d.deptype = 'n')
        AND NOT EXISTS (SELECT FROM pg_proc o WHERE o.oid <> p.oid AND o.prosrc ~ ('\\m' || p.proname || '\\M'))
    ORDER BY 1";

pub struct SchemaCode;

impl Gate for SchemaCode {
    fn name(&self) -> &'static str {
        "schema-code"
    }

    fn holds(&self) -> &'static str {
        "every function and view has a file of its name in migrations/functions, few arguments and a need, and migrations make none"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        let mut names = BTreeSet::new();
        for path in tree.files()?.iter().filter(|path| path.starts_with("migrations/")) {
            if path == REVISION {
                continue;
            }
            if let Some(name) = path.strip_prefix(FUNCTIONS) {
                found.extend(file_problem(path, name, &tree.read(path)?, &mut names));
            } else if is_later(path) {
                let made = sql::statements(&tree.read(path)?).into_iter().filter(makes_code);
                let message = "makes a function, trigger or view: put it into a file of migrations/functions";
                found.extend(made.map(|statement| Finding::at_line(path, statement.line, message)));
            }
        }
        let (made, arguments, statements) = schema::with_migrated(tree, async |database| {
            let mut connection = database.open(Roles::Admin).await?;
            let made = sqlx::query_scalar::<_, String>(MADE).fetch_all(&mut connection).await?;
            let arguments = sqlx::query_as::<_, (String, i32)>(ARGUMENTS).fetch_all(&mut connection).await?;
            let statements = sqlx::query_scalar::<_, String>(STATEMENTS)
                .bind(MOST_ARGUMENTS)
                .fetch_all(&mut connection)
                .await?;
            Ok((made, arguments, statements))
        })?;
        found.extend(statements.iter().map(|name| {
            let message = format!("{name} is one statement that only programs send: write it in store/");
            Finding::new(FUNCTIONS, message)
        }));
        found.extend(long_functions(&arguments).map(|(name, count)| {
            let message = format!("{name} has {count} arguments: take one value of a composite type");
            Finding::new(FUNCTIONS, message)
        }));
        for name in made.iter().filter(|name| !names.contains(*name)) {
            found.push(Finding::new(MIGRATIONS, format!("{name} has no file in migrations/functions")));
        }
        for name in names.iter().filter(|name| !made.contains(name)) {
            found.push(Finding::new(FUNCTIONS, format!("{name} is not in the database")));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let file = "migrations/functions/doors/door_open.sql";
        let function = "CREATE OR REPLACE FUNCTION door_open() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;\n";
        let trigger = "CREATE OR REPLACE TRIGGER doors_open BEFORE INSERT ON doors FOR EACH ROW EXECUTE FUNCTION door_open();\n";
        let both = format!("{function}{trigger}");
        let bookkeeping = "CREATE TABLE schema_code (migration bigint, revision bigint, sha256 bytea);
             CREATE TABLE doors (id uuid);";
        let later = "migrations/0035_later.sql";
        let tree = FixtureTree::new(&[
            ("migrations/0001_first.sql", bookkeeping),
            (
                later,
                "CREATE CONSTRAINT TRIGGER c AFTER INSERT ON doors FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();",
            ),
            (file, &both),
        ]);
        super::tests::Examples::good(tree)
            .bad("function in a migration", "0035_later.sql:1: makes a function", |tree| {
                tree.with(later, function)
            })
            .bad("view in a migration", "0035_later.sql:1: makes a function", |tree| {
                tree.with(later, "CREATE VIEW v AS SELECT 1 AS n;")
            })
            .bad("function without a file", "door_shut has no file", |tree| {
                tree.with("migrations/0002_old.sql", function.replace("door_open", "door_shut"))
            })
            .bad("file of another name", "must make door_shut", |tree| {
                tree.with("migrations/functions/doors/door_shut.sql", &both)
            })
            .bad("file that cannot be applied twice", "CREATE OR REPLACE", |tree| {
                tree.with(file, both.replace("CREATE OR REPLACE TRIGGER", "CREATE TRIGGER"))
            })
            .bad("many arguments", "door_open has 9 arguments", |tree| {
                let nine = ["integer"; 9].join(", ");
                tree.with(file, format!("CREATE OR REPLACE FUNCTION door_open({nine}) RETURNS integer LANGUAGE sql AS $$ SELECT 1 $$;"))
            })
            .bad("statement as a function", "door_open is one statement", |tree| {
                tree.with(file, "CREATE OR REPLACE FUNCTION door_open() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM doors $$;")
            })
            .bad("file outside of a domain", "functions/<domain>/<name>.sql", |tree| {
                tree.with("migrations/functions/door.sql", function)
            })
            .bad("file that makes nothing of use", "cannot be applied", |tree| {
                tree.with(file, both.replace("ON doors", "ON windows"))
            })
    }
}

/// Those with too many arguments. One of the same name with few says that the long one serves the release before
/// (gate `released-statements`).
fn long_functions(arguments: &[(String, i32)]) -> impl Iterator<Item = &(String, i32)> {
    let is_short =
        |name: &str| arguments.iter().any(|(other, count)| other == name && *count <= MOST_ARGUMENTS);
    arguments.iter().filter(move |(name, count)| *count > MOST_ARGUMENTS && !is_short(name))
}

/// Whether it is a migration from after there were files for functions.
fn is_later(path: &str) -> bool {
    let number = path.strip_prefix("migrations/").and_then(|name| name.get(..LAST_WITH_FUNCTIONS.len()));
    number.is_some_and(|number| {
        number.bytes().all(|byte| byte.is_ascii_digit()) && number > LAST_WITH_FUNCTIONS
    })
}

fn file_problem(path: &str, name: &str, text: &str, names: &mut BTreeSet<String>) -> Option<Finding> {
    let parts: Vec<&str> = name.split('/').collect();
    let [_, file] = parts[..] else {
        return Some(Finding::new(path, "must be migrations/functions/<domain>/<name>.sql"));
    };
    let Some(name) = file.strip_suffix(".sql") else {
        return Some(Finding::new(path, "must be migrations/functions/<domain>/<name>.sql"));
    };
    names.insert(name.to_owned());
    let statements = sql::statements(text);
    let made: Vec<&Statement> = statements.iter().filter(|statement| makes_code(statement)).collect();
    if let Some(wrong) = made.iter().find(|statement| !statement.starts(&["CREATE", "OR", "REPLACE"])) {
        return Some(Finding::at_line(
            path,
            wrong.line,
            "must be CREATE OR REPLACE: files are applied again",
        ));
    }
    let main: Vec<_> = made.iter().filter(|s| s.words.get(3).is_some_and(|word| word != "TRIGGER")).collect();
    let is_named =
        |statement: &&&Statement| statement.words.get(4).is_some_and(|word| *word == name.to_uppercase());
    (main.is_empty() || !main.iter().all(is_named))
        .then(|| Finding::new(path, format!("must make {name}, and no other function or view")))
}

/// Constraint triggers are constraints of their table.
fn makes_code(statement: &Statement) -> bool {
    let kinds = ["FUNCTION", "PROCEDURE", "TRIGGER", "VIEW"];
    let at = if statement.starts(&["CREATE", "OR", "REPLACE"]) { 3 } else { 1 };
    let first = statement.words.get(at).map_or("", String::as_str);
    statement.starts(&["CREATE"]) && (kinds.contains(&first) || first == "MATERIALIZED")
}
