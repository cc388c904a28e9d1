//! Every endpoint × every role × {own organization, another's, suspended, anonymous, revoked}.
//!
//! The list of endpoints comes from the document that the server serves, so a new one appears here by
//! itself and fails the test until its row is looked at and accepted (`UPDATE_GOLDEN=1`). Each cell is
//! decided by the real pipeline. `If-Match: ?` makes an authorized request stop with 400 right after
//! authorization, so that asking "may I delete this" deletes nothing.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use reqwest::Method;
use serde_json::{Value, json};
use testkit::{Api, Person, World, eventually};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/matrix.golden");

/// A place to act in: an organization with a project, an invitation and a service account.
struct Place {
    org: String,
    project: String,
    invitation: String,
}

struct Cast {
    /// Role name → how it calls.
    people: Vec<(String, Api)>,
    own_machine: Api,
    suspended_machine: Api,
    revoked_person: Api,
    revoked_machine: Api,
}

async fn place(world: &World, slug: &str) -> Place {
    let org = world.org(slug).await;
    let project = world.project(&org, "p").await;
    let body = json!({ "email": format!("guest-{slug}@example.org"), "role": "member" });
    let invitation = world.admin.post(&format!("/api/v1/orgs/{org}/invitations"), body).await.expect(201);
    Place { org, project, invitation: invitation["id"].as_str().unwrap().to_owned() }
}

async fn machine(world: &World, project: &str, name: &str) -> (Api, String) {
    let path = format!("/api/v1/projects/{project}/service-accounts");
    let account = world.admin.post(&path, json!({ "name": name })).await.expect(201);
    let keys = format!("{path}/{}/keys", account["id"].as_str().unwrap());
    let key = world.admin.post(&keys, json!({})).await.expect(201);
    let (id, secret) = (key["id"].as_str().unwrap(), key["secret"].as_str().unwrap());
    let form = [("grant_type", "client_credentials"), ("client_id", id), ("client_secret", secret)];
    let api = world.server.api();
    let token = api.send(api.request(Method::POST, "/auth/token").form(&form)).await.expect(200);
    (api.with_token(token["access_token"].as_str().unwrap()), format!("{keys}/{id}"))
}

async fn cast(world: &World, own: &Place, suspended: &Place) -> Cast {
    let mut people = Vec::new();
    for (scope, roles) in
        [("org", ["owner", "admin", "member", "viewer"]), ("project", ["owner", "admin", "member", "viewer"])]
    {
        for role in roles {
            let person = world.person(&format!("{scope}-{role}")).await;
            for place in [own, suspended] {
                world.join(&person, &place.org, if scope == "org" { role } else { "member" }).await;
                if scope == "project" {
                    let path = format!("/api/v1/projects/{}/members/{}", place.project, person.id);
                    assert!(world.admin.put(&path, json!({ "role": role })).await.status < 300);
                }
            }
            people.push((format!("{scope}_{role}"), person.api));
        }
    }
    people.push(("person".to_owned(), world.person("stranger").await.api));
    for role in ["platform_admin", "platform_ops", "platform_auditor"] {
        let person = world.person(role).await;
        world.grant_platform_role(&person, role).await;
        people.push((role.to_owned(), person.api));
    }
    let (own_machine, _) = machine(world, &own.project, "ci").await;
    let (suspended_machine, _) = machine(world, &suspended.project, "ci").await;
    let (revoked_machine, key) = machine(world, &own.project, "gone").await;
    revoked_machine.get(&format!("/api/v1/projects/{}", own.project)).await.expect(200);
    world.admin.delete(&key).await.expect(204);
    let revoked_person = revoked(world).await.api;
    Cast { people, own_machine, suspended_machine, revoked_person, revoked_machine }
}

async fn revoked(world: &World) -> Person {
    let person = world.person("revoked").await;
    let session = person.api.get("/api/v1/me").await.expect(200)["session_id"].as_str().unwrap().to_owned();
    person.api.delete(&format!("/api/v1/me/sessions/{session}")).await.expect(204);
    person
}

fn fill(path: &str, place: &Place) -> String {
    let mut filled = path.replace("{org_id}", &place.org).replace("{project_id}", &place.project);
    filled = filled.replace("{invitation_id}", &place.invitation);
    for (name, prefix) in [
        ("user_id", "user"),
        ("service_account_id", "sa"),
        ("key_id", "sak"),
        ("session_id", "sess"),
        ("ssh_key_id", "key"),
        ("dead_letter_id", "dl"),
        ("account_id", "acct"),
    ] {
        filled = filled.replace(&format!("{{{name}}}"), &format!("{prefix}_{}", "0".repeat(32)));
    }
    filled.replace("{key}", "terminal.recording")
}

/// `allow`, or the refusal.
async fn ask(api: &Api, method: &str, path: &str) -> String {
    let method: Method = method.parse().unwrap();
    let request = api.request(method, path).header("if-match", "?").header("x-idempotency-key", "matrix");
    let answer = api.send(request).await;
    let field = answer.body["error"]["details"]["fields"][0]["field"].as_str();
    match (answer.status, field) {
        (400, Some("If-Match")) => "allow".to_owned(),
        (status, _) if status < 300 => "allow".to_owned(),
        (status, _) => format!("{status} {}", answer.code()),
    }
}

/// Roles by outcome, on one line.
fn line(label: &str, cells: &[(String, String)]) -> String {
    let mut by_outcome: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (role, outcome) in cells {
        by_outcome.entry(outcome).or_default().push(role);
    }
    let mut text = format!("  {label:<10}");
    let mut outcomes: Vec<_> = by_outcome.into_iter().collect();
    outcomes.sort_by_key(|(outcome, _)| (*outcome != "allow", *outcome));
    for (outcome, roles) in outcomes {
        let _ = write!(text, " | {outcome}: {}", roles.join(" "));
    }
    text + "\n"
}

#[tokio::test]
async fn every_endpoint_answers_every_role_as_the_golden_file_says() {
    let world = World::start().await;
    let (own, other, suspended) =
        (place(&world, "own").await, place(&world, "other").await, place(&world, "gone").await);
    let cast = cast(&world, &own, &suspended).await;
    let suspend = format!("/api/v1/platform/orgs/{}/suspend", suspended.org);
    assert!(world.admin.post(&suspend, json!({ "reason": "for the matrix" })).await.status < 300);
    eventually("the revoked machine is refused", || async {
        (cast.revoked_machine.get(&format!("/api/v1/projects/{}", own.project)).await.status == 401)
            .then_some(())
    })
    .await;

    let document = world.server.api().get("/api/v1/openapi.json").await.expect(200);
    let mut actual = String::from(
        "# Who may do what. See matrix.rs; accept changes with UPDATE_GOLDEN=1 after reading them.\n",
    );
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            actual += &rows(&world, &cast, [&own, &other, &suspended], method, path, operation).await;
        }
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, &actual).unwrap();
    }
    let golden = std::fs::read_to_string(Path::new(GOLDEN)).unwrap_or_default();
    for (number, (is, should)) in actual.lines().zip(golden.lines()).enumerate() {
        assert_eq!(is, should, "line {} differs from the golden file", number + 1);
    }
    assert_eq!(actual.lines().count(), golden.lines().count(), "endpoints were added or removed");
}

async fn rows(
    world: &World,
    cast: &Cast,
    places: [&Place; 3],
    method: &str,
    path: &str,
    operation: &Value,
) -> String {
    let method = method.to_uppercase();
    let text = |key: &str| operation[key].as_str().unwrap_or("-").to_owned();
    let mut out = format!(
        "\n{} {method} {path} scope={} permission={} audit={}\n",
        text("operationId"),
        text("x-gpuaas-scope"),
        text("x-gpuaas-permission"),
        text("x-gpuaas-audit")
    );
    let scoped =
        path.contains("{org_id}") || path.contains("{project_id}") || path.contains("{invitation_id}");
    let labels = if scoped { &["own", "other", "suspended"][..] } else { &["any"][..] };
    for (label, place) in labels.iter().zip(places) {
        let url = fill(path, place);
        let machine = if *label == "suspended" { &cast.suspended_machine } else { &cast.own_machine };
        let all = cast.people.iter().map(|(r, a)| (r.as_str(), a)).chain([("service_account", machine)]);
        let asked = all.map(|(role, api)| {
            let question = ask(api, &method, &url);
            async move { (role.to_owned(), question.await) }
        });
        out += &line(label, &futures_util::future::join_all(asked).await);
    }
    let url = fill(path, places[0]);
    let outsiders = [
        ("anonymous", &world.server.api()),
        ("revoked_person", &cast.revoked_person),
        ("revoked_service_account", &cast.revoked_machine),
    ];
    let mut cells = Vec::new();
    for (who, api) in outsiders {
        cells.push((who.to_owned(), ask(api, &method, &url).await));
    }
    out + &line("outsiders", &cells)
}
