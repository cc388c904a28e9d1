//! Organizations, projects, people, service accounts, keys and policies.

use serde_json::{Value, json};
use testkit::{Api, ServerOptions, World, eventually};

use crate::kit::{Gpuaas, Place, text};

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUm me@home\n";

fn find<'a>(list: &'a Value, name: &str, wanted: &str) -> &'a Value {
    let found = list.as_array().unwrap().iter().find(|item| item[name] == wanted);
    found.unwrap_or_else(|| panic!("no {wanted} in {list}"))
}

#[tokio::test]
async fn an_organization_is_made_and_somebody_invited_into_it() {
    let place = Place::start().await;
    let (org, project) = place.org_and_project().await;
    let orgs = place.admin.json(&["orgs", "list"]).await;
    assert_eq!(find(&orgs, "slug", "acme")["role"], "owner");
    place.admin.run(&["context", "use", "--org", "acme", "-p", "lab"]).await.ok();
    assert_eq!(place.admin.json(&["context", "show"]).await["project"], json!(project));
    assert_eq!(place.admin.json(&["projects", "get"]).await["id"], json!(project));

    let bob = place.person("bob@example.org").await;
    bob.run(&["orgs", "get", &org]).await.fails(4);
    let invited = place.admin.json(&["invitations", "create", "bob@example.org", "--role", "viewer"]).await;
    let accept = ["invitations", "accept", &text(&invited["id"]), "--token-file", "-"];
    bob.run_with(&accept, "wrong").await.fails(4);
    bob.run_with(&accept, &text(&invited["token"])).await.ok();
    assert_eq!(bob.json(&["orgs", "get", "acme"]).await["id"], json!(org));
    let said = bob.run(&["projects", "create", "mine", "--org", "acme"]).await.fails(3);
    assert!(said.contains("insufficient_permissions") && said.contains("correlation id: "), "{said}");

    let members = place.admin.json(&["members", "list"]).await;
    let bob_id = text(&find(&members, "email", "bob@example.org")["id"]);
    place.admin.run(&["members", "set-role", &bob_id, "admin"]).await.ok();
    bob.run(&["projects", "create", "mine", "--name", "My own", "--org", "acme"]).await.ok();
    place.admin.run(&["projects", "members", "set", &bob_id, "owner"]).await.ok();
    let people = place.admin.json(&["projects", "members", "list"]).await;
    assert_eq!(find(&people, "id", &bob_id)["role"], "owner");
    place.admin.run(&["projects", "members", "remove", &bob_id]).await.ok();

    place.admin.run(&["platform", "orgs", "suspend", "acme", "--reason", "unpaid", "--yes"]).await.ok();
    let said = eventually("the suspension is felt", || async {
        let ran = bob.run(&["projects", "rename", "mine", "Ours", "--org", "acme"]).await;
        (ran.code == Some(3)).then_some(ran.err)
    })
    .await;
    assert!(said.contains("tenant_suspended"), "{said}");
    place.admin.run(&["platform", "orgs", "resume", "acme"]).await.ok();

    // Nobody is there to confirm, so it must be said.
    place.admin.run(&["members", "remove", &bob_id]).await.fails(1);
    place.admin.run(&["members", "remove", &bob_id, "--yes"]).await.ok();
    bob.run(&["orgs", "get", &org]).await.fails(4);
    place.admin.run(&["projects", "delete", "mine", "--yes"]).await.ok();
}

#[tokio::test]
async fn a_service_account_works_with_its_key_until_the_key_is_revoked() {
    let place = Place::start().await;
    let (_, project) = place.org_and_project().await;
    place.admin.run(&["context", "use", "--org", "acme", "-p", "lab"]).await.ok();
    let account = text(&place.admin.json(&["service-accounts", "create", "builder"]).await["id"]);
    let key =
        place.admin.json(&["service-accounts", "keys", "create", &account, "--expires-in-days", "9"]).await;
    let machine = place.gpuaas().env("GPUAAS_SERVICE_ACCOUNT_KEY", &text(&key["secret"]));
    assert_eq!(machine.json(&["projects", "get", &project]).await["slug"], "lab");
    machine.run(&["doctor"]).await.ok();
    // For programs that speak to the API themselves.
    let token = machine.run(&["auth", "token"]).await.ok();
    let api = Api::new(&place.server.base, Some(token.trim().to_owned()));
    assert_eq!(api.get(&format!("/api/v1/projects/{project}")).await.expect(200)["slug"], "lab");
    assert!(!machine.file("credentials.json").exists());
    machine.run(&["projects", "delete", &project, "--yes"]).await.fails(3);
    machine.run(&["ssh-keys", "list"]).await.fails(3);

    place.admin.run(&["service-accounts", "keys", "revoke", &account, &text(&key["id"])]).await.ok();
    let keys = place.admin.json(&["service-accounts", "keys", "list", &account]).await;
    assert_eq!(keys[0]["state"], "revoked");
    eventually("the key stops working", || async {
        (machine.run(&["projects", "get", &project]).await.code == Some(3)).then_some(())
    })
    .await;
    place.admin.run(&["service-accounts", "disable", &account]).await.ok();
    assert_eq!(place.admin.json(&["service-accounts", "get", &account]).await["state"], "disabled");
    place.admin.run(&["service-accounts", "delete", &account, "--yes"]).await.ok();
}

#[tokio::test]
async fn ssh_keys_come_from_a_file_or_standard_input_and_private_ones_stay_at_home() {
    let place = Place::start().await;
    let added = place.admin.run_with(&["ssh-keys", "add", "-", "-o", "json"], KEY).await.json();
    assert_eq!((&added["name"], &added["key_type"]), (&json!("me@home"), &json!("ssh-ed25519")));
    place.admin.run_with(&["ssh-keys", "add", "-"], KEY).await.fails(5);
    place.admin.run(&["ssh-keys", "add", "/does/not/exist"]).await.fails(1);
    let private = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
    let said = place.admin.run_with(&["ssh-keys", "add", "-", "--name", "x"], private).await.fails(1);
    assert!(said.contains("private key"), "{said}");
    place.admin.run(&["ssh-keys", "remove", &text(&added["id"])]).await.ok();
    assert_eq!(place.admin.json(&["ssh-keys", "list"]).await, json!([]));
}

#[tokio::test]
async fn policies_are_set_explained_and_felt() {
    let place = Place::start().await;
    let (_, _) = place.org_and_project().await;
    let key = "quota.gpus_per_org";
    let set = ["policy", "set", key, "8", "--scope", "platform"];
    assert_eq!(place.admin.json(&set).await["value"], 8);
    place.admin.run(&["policy", "set", key, "4", "--scope", "org", "--org", "acme"]).await.ok();
    assert_eq!(place.admin.run(&["policy", "get", key, "--org", "acme"]).await.ok(), "4\n");
    let why = place.admin.json(&["policy", "explain", key, "--org", "acme"]).await;
    assert_eq!(find(&why["considered"], "scope", "global")["outcome"], "overridden");
    place.admin.run(&["policy", "unset", key, "--org", "acme"]).await.ok();
    assert_eq!(place.admin.run(&["policy", "get", key, "--org", "acme"]).await.ok(), "8\n");
    place.admin.run(&["policy", "set", key, "many", "--scope", "platform"]).await.fails(1);
    place.admin.run(&["policy", "get", "no.such.key", "--scope", "platform"]).await.fails(4);

    let one = ["policy", "set", "identity.ssh_keys_per_user", "1", "--scope", "platform"];
    place.admin.run(&one).await.ok();
    place.admin.run_with(&["ssh-keys", "add", "-"], KEY).await.ok();
    let another = KEY.replace("AAAAIAcI", "AAAAIAcH");
    let said = place.admin.run_with(&["ssh-keys", "add", "-"], &another).await.fails(6);
    assert!(said.contains("quota_exceeded"), "{said}");
}

#[tokio::test]
async fn whoever_invites_is_told_whether_a_mail_goes_out_and_to_whom() {
    let config = format!(
        "[notify.smtp]\nhost = \"127.0.0.1\"\nport = {}\nencryption = \"none\"\n",
        testkit::free_port()
    );
    for (config, mailed) in [(String::new(), false), (config, true)] {
        let world = World::start_with(ServerOptions { config, ..ServerOptions::default() }).await;
        world.org("acme").await;
        let root = Gpuaas::new(&world.server.base).env("GPUAAS_TOKEN", &world.idp.token("root", "1"));
        let create = |email| ["invitations", "create", email, "--org", "acme"];
        let ran = root.run(&create("ada@example.org")).await;
        let told = "A mail with the link goes to ada@example.org";
        assert_eq!(ran.err.contains(told), mailed, "{ran:?}");
        assert_eq!(ran.err.contains("Mail is not configured"), !mailed, "{ran:?}");
        let made = root.json(&create("bob@example.org")).await;
        assert_eq!(made["mailed_to"], if mailed { json!("bob@example.org") } else { Value::Null });
    }
}
