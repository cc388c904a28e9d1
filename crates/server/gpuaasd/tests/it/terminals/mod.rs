//! Terminals, from the request for a token to the shell on a node and back.

mod abuse;
pub mod client;
mod command_line;
mod drawn_screen;
mod entering;
mod lasting;
mod losing;
mod metrics;
mod network;
mod old_agents;
mod processes;
pub mod recorded;
mod recordings;
mod recordings_cli;
mod recordings_kept;
mod recordings_screens;
mod recordings_tampered;
mod recordings_watched;
mod refusals;
mod screens;
mod session_limits;
mod unattended;
mod wrong_storage;

use serde_json::{Value, json};
use testkit::{Person, Tenant, World, made_up_key};

const SLICE: &str = "h200-sxm-slice";

/// Two people of one organization with money: the first has made its project.
struct Team {
    ann: Tenant,
    bob: Tenant,
    org: String,
}

impl Team {
    async fn new(world: &World) -> Self {
        let org = world.org("acme").await;
        world.fund(&org, 100_000).await;
        let (ann, bob) = (world.person("ann").await, world.person("bob").await);
        for (person, role) in [(&ann, "admin"), (&bob, "member")] {
            person.add_key("laptop", &made_up_key()).await;
            world.join(person, &org, role).await;
        }
        let project = json!({ "name": "lab", "slug": "lab" });
        let project = ann.api.post(&format!("/api/v1/orgs/{org}/projects"), project).await.expect(201);
        let project = project["id"].as_str().unwrap().to_owned();
        let tenant = |person: Person| Tenant { person, project: project.clone() };
        Self { ann: tenant(ann), bob: tenant(bob), org }
    }

    /// What the second one is in the project.
    async fn bob_is(&self, role: &str) {
        let path = format!("/api/v1/projects/{}/members/{}", self.ann.project, self.bob.person.id);
        self.ann.api().put(&path, json!({ "role": role })).await.expect(200);
    }

    /// Lets the second one into a machine of the first.
    async fn bob_may_enter(&self, allocation: &str) {
        let path = self.ann.path(&format!("/{allocation}/grants"));
        self.ann.api().post(&path, json!({ "user_id": self.bob.person.id })).await.expect(201);
    }
}

fn slice(gpus: u32) -> Value {
    json!({ "sku": SLICE, "gpus": gpus })
}
