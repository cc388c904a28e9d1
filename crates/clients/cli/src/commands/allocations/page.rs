//! One allocation, for people: its state, how to log in, and the next steps.

use sdk::types::{Allocation, AllocationState as State};

use super::refusal::quoted;
use crate::{
    app::App,
    commands::{catalog::price, ssh},
    failure::Result,
    output::{counted, relative},
};

pub fn show(app: &App, allocation: &Allocation) -> Result {
    let now = app.ambient.now();
    let steps: String = next_steps(allocation).iter().map(|step| format!("  {step}\n")).collect();
    let below = if steps.is_empty() { steps } else { format!("\nNext:\n{steps}") };
    app.out.page(allocation, &lines(app, allocation, now), &below)
}

fn lines(app: &App, one: &Allocation, now: chrono::DateTime<chrono::Utc>) -> Vec<(&'static str, String)> {
    let because = if one.state_reason.is_empty() { String::new() } else { format!(": {}", one.state_reason) };
    let since = relative(now, one.state_changed_at);
    let since = since.trim_end_matches(" ago");
    let size = [
        (one.gpus > 0).then(|| counted(one.gpus, "GPU")),
        one.profile.vcpus.map(|vcpus| counted(vcpus, "vCPU")),
        one.profile.memory_mib.map(|mib| format!("{} GiB", mib / 1024)),
    ];
    let size = size.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let keys = match (&one.connection, one.access_current) {
        (None, _) => String::new(),
        (Some(_), true) => "current".to_owned(),
        (Some(_), false) => "the latest are not installed on the machine yet".to_owned(),
    };
    let login = one.connection.as_ref().map(|connection| match is_simulated(one) {
        true => "none: the node is simulated".to_owned(),
        false => ssh::line(connection),
    });
    let at = |at: Option<chrono::DateTime<chrono::Utc>>| at.map(|at| relative(now, at)).unwrap_or_default();
    vec![
        ("name", one.name.clone()),
        ("id", one.id.to_string()),
        ("state", format!("{} since {since}{because}", one.state)),
        ("sku", one.sku.clone()),
        ("size", format!("{} ({size})", one.profile.name)),
        ("image", one.profile.image.clone().unwrap_or_default()),
        ("region", one.region.clone()),
        ("price", price(one.unit_price_minor, &one.currency, &one.price_unit.to_string())),
        ("group", one.group_id.as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default()),
        ("created", format!("{} by {}", relative(now, one.created_at), app.out.name_of(&one.creator_id))),
        ("billed from", at(one.meter_opened_at)),
        ("billed until", at(one.meter_closed_at)),
        ("keys", keys),
        ("login", login.unwrap_or_default()),
    ]
}

fn is_simulated(one: &Allocation) -> bool {
    one.connection.as_ref().is_some_and(|connection| connection.simulated == Some(true))
}

/// The next steps for the user, as commands.
fn next_steps(one: &Allocation) -> Vec<String> {
    // A name is unique among live ones only.
    let (id, name) = (one.id.as_str(), quoted(&one.name));
    match one.state {
        State::Active if is_simulated(one) => vec![format!("gpuaas rm {name}")],
        State::Active => vec![format!("gpuaas ssh {name}"), format!("gpuaas rm {name}")],
        State::Requested | State::Provisioning | State::Releasing => {
            vec![format!("gpuaas allocations show {name} --watch")]
        }
        State::ReleaseFailed => vec![format!("gpuaas allocations retry {name} --wait")],
        State::Failed => vec![format!("gpuaas allocations events {id}")],
        State::Released => Vec::new(),
    }
}
