//! Changes that two people make, typed by both of them.

use serde_json::{Value, json};
use testkit::eventually;

use crate::kit::{Gpuaas, Place, text};

const KEY: &str = "billing.adjustment_approval_minor";

/// A server with two administrators, the second one appointed by the first.
struct Office {
    place: Place,
    second: Gpuaas,
}

impl Office {
    async fn open() -> Self {
        let place = Place::start().await;
        let second = place.person("second@example.org").await;
        let office = Self { place, second };
        let appoint = ["platform", "users", "set-roles", "second@example.org", "platform_admin"];
        office.first().run(&appoint).await.ok();
        office.becomes(&office.second, true).await;
        office
    }

    fn first(&self) -> &Gpuaas {
        &self.place.admin
    }

    async fn user(&self, email: &str) -> String {
        text(&self.first().json(&["platform", "users", "list", "--email", email]).await[0]["id"])
    }

    /// Whether they can do what administrators can.
    async fn is_administrator(&self, person: &Gpuaas) -> bool {
        person.run(&["platform", "changes", "list"]).await.code == Some(0)
    }

    async fn becomes(&self, person: &Gpuaas, administrator: bool) {
        eventually("the roles are effective", || async {
            (self.is_administrator(person).await == administrator).then_some(())
        })
        .await;
    }

    /// The value that holds for the whole platform.
    async fn limit(&self) -> Value {
        self.first().json(&["policy", "get", KEY, "--scope", "platform"]).await["value"].clone()
    }

    /// Proposes, and answers the id and what was said to the person.
    async fn propose(&self, arguments: &[&str]) -> (String, String) {
        let arguments = [&["platform", "changes"], arguments, &["--reason", "agreed", "-o", "json"]].concat();
        let ran = self.first().run(&arguments).await;
        let said = ran.err.clone();
        let change = ran.json();
        assert_eq!(change["state"], "proposed", "{change}");
        (text(&change["id"]), said)
    }
}

async fn decide(person: &Gpuaas, how: &str, change: &str) -> crate::kit::Ran {
    person.run(&["platform", "changes", how, change]).await
}

#[tokio::test]
async fn the_amount_above_which_two_are_needed_is_changed_by_two_who_type_it() {
    let office = Office::open().await;
    let (first, second) = (office.first(), &office.second);
    let before = office.limit().await;
    let said = first.run(&["policy", "set", KEY, "700", "--scope", "platform"]).await.fails(3);
    assert!(said.contains(&format!("gpuaas platform changes propose-policy {KEY}")), "{said}");

    let (change, said) = office.propose(&["propose-policy", KEY, "700"]).await;
    assert!(said.contains(&format!("gpuaas platform changes approve {change}")), "{said}");
    assert_eq!(office.limit().await, before, "nothing holds yet");
    let listed = second.run(&["platform", "changes", "list", "--state", "proposed"]).await.ok();
    assert!(listed.contains(&change) && listed.contains(KEY) && listed.contains("700"), "{listed}");
    let shown = second.json(&["platform", "changes", "show", &change]).await;
    assert_eq!((&shown["value"], &shown["reason"]), (&json!(700), &json!("agreed")), "{shown}");

    for how in ["approve", "reject"] {
        let said = decide(first, how, &change).await.fails(3);
        assert!(said.contains("another administrator"), "{said}");
    }
    assert_eq!(office.limit().await, before, "not by the one who proposed it");
    let done = decide(second, "approve", &change).await;
    assert!(done.err.contains(&format!("{KEY} is 700 now")), "{done:?}");
    assert!(done.ok().contains("applied"));
    assert_eq!(office.limit().await, json!(700));
    let said = decide(second, "approve", &change).await.fails(5);
    assert!(said.contains("already"), "{said}");

    // It is really in force: seven dollars and a cent wait now.
    first.run(&["platform", "orgs", "create", "acme", "--owner", "admin@localhost"]).await.ok();
    let create = ["platform", "billing", "adjustments", "create", "--kind", "credit", "--org", "acme"];
    let more = ["--reason", "welcome", "--amount", "7.01", "-o", "json"];
    let made = first.run(&[&create[..], &more].concat()).await;
    assert!(made.err.contains("gpuaas platform billing adjustments approve adj_"), "{made:?}");
    let made = made.json();
    assert_eq!(made["state"], "proposed", "{made}");
    let adjustment = text(&made["id"]);
    let notices = second.json(&["notifications", "list"]).await;
    let notices = match notices.as_array().map(Vec::len) {
        Some(0) => {
            eventually("the second is notified", || async {
                let found = second.json(&["notifications", "list"]).await;
                (found.as_array().map(Vec::len) == Some(1)).then_some(found)
            })
            .await
        }
        _ => notices,
    };
    assert_eq!(notices[0]["kind"], "adjustment_waiting", "{notices}");
    assert!(text(&notices[0]["text"]).contains(&adjustment), "{notices}");
    assert_eq!(first.json(&["notifications", "list"]).await, json!([]), "who proposed it knows");
    let done = second.json(&["platform", "billing", "adjustments", "approve", &adjustment]).await;
    assert_eq!(done["state"], "posted", "{done}");
    assert_eq!(first.json(&["billing", "balance", "--org", "acme"]).await["total_minor"], 701);
    // A posting is corrected by its number in the ledger.
    let posting = first.json(&["ledger", "show", "1", "--org", "acme"]).await["posting"].clone();
    let correct = ["platform", "billing", "adjustments", "create", "--kind", "correction", "--org", "acme"];
    let more = ["--corrects", "1", "--amount", "-0.01", "--reason", "a cent too much"];
    let made = first.json(&[&correct[..], &more].concat()).await;
    assert_eq!(made["corrects_entry_id"], posting["id"], "{made}");

    // Rejected: what holds stays. Removed, and for one organization only: by two as well.
    let (change, _) = office.propose(&["propose-policy", KEY, "1000000"]).await;
    let done = decide(second, "reject", &change).await;
    assert!(done.err.contains("Nothing was changed"), "{done:?}");
    assert!(done.ok().contains("rejected"));
    assert_eq!(office.limit().await, json!(700));
    decide(second, "approve", &change).await.fails(5);
    let (change, _) = office.propose(&["propose-policy", KEY, "5", "--for-org", "acme"]).await;
    decide(second, "approve", &change).await.ok();
    assert_eq!(first.json(&["policy", "get", KEY, "--org", "acme"]).await["value"], json!(5));
    assert_eq!(office.limit().await, json!(700));
    let (change, _) = office.propose(&["propose-policy", KEY]).await;
    let done = decide(second, "approve", &change).await;
    assert!(done.err.contains(&format!("Removed the stored value of {KEY}")), "{done:?}");
    assert_eq!(office.limit().await, before);

    let states = first.json(&["platform", "changes", "list", "--state", "applied"]).await;
    assert_eq!(states.as_array().map(Vec::len), Some(4), "with the second administrator: {states}");
    let rejected = first.json(&["platform", "changes", "list", "--state", "rejected"]).await;
    assert_eq!(rejected.as_array().map(Vec::len), Some(1), "{rejected}");
}

#[tokio::test]
async fn who_may_approve_is_decided_by_two_who_type_it() {
    let office = Office::open().await;
    let (first, second) = (office.first(), &office.second);
    let (third, fourth) =
        (office.place.person("third@example.org").await, office.place.person("fourth@example.org").await);
    let (third_id, fourth_id) =
        (office.user("third@example.org").await, office.user("fourth@example.org").await);

    let said = first.run(&["platform", "users", "set-roles", &third_id, "platform_admin"]).await.fails(3);
    assert!(said.contains("gpuaas platform changes propose-roles"), "{said}");
    let (change, said) = office.propose(&["propose-roles", "third@example.org", "platform_admin"]).await;
    assert!(said.contains(&format!("gpuaas platform changes approve {change}")), "{said}");
    assert!(!office.is_administrator(&third).await, "a proposal gives nothing");
    // Names are chosen freely: nobody gets a role by their name.
    first.run(&["platform", "users", "set-roles", "third", "platform_ops"]).await.fails(4);
    decide(first, "approve", &change).await.fails(3);
    // Who is to get the right cannot give it to themselves, either.
    decide(&third, "approve", &change).await.fails(3);
    let done = decide(second, "approve", &change).await;
    assert!(done.err.contains("third@example.org is platform_admin now"), "{done:?}");
    done.ok();
    office.becomes(&third, true).await;

    let (change, _) = office.propose(&["propose-roles", &fourth_id, "platform_admin", "platform_ops"]).await;
    decide(&third, "reject", &change).await.ok();
    assert!(!office.is_administrator(&fourth).await);
    let shown = first.json(&["platform", "changes", "show", &change]).await;
    assert_eq!((&shown["state"], &shown["decided_by"]), (&json!("rejected"), &json!(third_id)), "{shown}");

    // Roles without the right to approve need nobody, and are refused here with what to do.
    let arguments =
        ["platform", "changes", "propose-roles", &fourth_id, "platform_ops", "--reason", "on call"];
    let said = first.run(&arguments).await.fails(1);
    assert!(said.contains(&format!("gpuaas platform users set-roles {fourth_id}")), "{said}");
    let other = "billing.window_seconds";
    let said = first
        .run(&["platform", "changes", "propose-policy", other, "60", "--reason", "agreed"])
        .await
        .fails(1);
    assert!(said.contains(&format!("gpuaas policy set {other}")), "{said}");

    // Taking the right away is for one alone.
    first.run(&["platform", "users", "set-roles", &third_id]).await.ok();
    office.becomes(&third, false).await;
}
