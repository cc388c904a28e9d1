//! Putting nodes into service and out of it.

use std::time::Duration;

use sdk::{Client, types};
use tokio::time::Instant;

use super::{CHANGED, Reasoned, occupants};
use crate::{
    app::App,
    args::{Confirm, Wait},
    commands::tasks,
    failure::{Exit, Failure, Result},
    output::{counted, note},
    resolve,
};

const POLL: Duration = Duration::from_secs(2);

/// The node's id, and the body that says why.
async fn because(client: &Client, reasoned: &Reasoned) -> Result<(String, types::Because)> {
    let body = types::Because { reason: reasoned.reason.clone() };
    Ok((resolve::node(client, &reasoned.node).await?, body))
}

pub async fn cordon(app: &App, client: &Client, reasoned: Reasoned) -> Result {
    let (node, body) = because(client, &reasoned).await?;
    app.out.item(&send!(client.node_cordon(&node, &body)), CHANGED)
}

pub async fn uncordon(app: &App, client: &Client, node: &str) -> Result {
    let node = resolve::node(client, node).await?;
    app.out.item(&send!(client.node_uncordon(&node)), CHANGED)
}

pub async fn undrain(app: &App, client: &Client, reasoned: Reasoned) -> Result {
    let (node, body) = because(client, &reasoned).await?;
    app.out.item(&send!(client.node_undrain(&node, &body)), CHANGED)
}

pub async fn quarantine(app: &App, client: &Client, reasoned: Reasoned) -> Result {
    let (node, body) = because(client, &reasoned).await?;
    app.out.item(&send!(client.node_quarantine(&node, &body)), CHANGED)
}

pub async fn release(app: &App, client: &Client, reasoned: Reasoned) -> Result {
    let (node, body) = because(client, &reasoned).await?;
    app.out.item(&send!(client.node_release(&node, &body)), CHANGED)
}

pub async fn retire(app: &App, client: &Client, reasoned: Reasoned) -> Result {
    let (node, body) = because(client, &reasoned).await?;
    let answer = async { Ok(send!(client.node_retire(&node, &body))) }.await;
    app.out.item(&or_occupants(app, client, &node, answer).await?, CHANGED)
}

pub async fn delete(app: &App, client: &Client, reasoned: Reasoned, confirm: &Confirm) -> Result {
    let (node, body) = because(client, &reasoned).await?;
    app.confirm(confirm, &format!("Delete {} permanently from the fleet", reasoned.node))?;
    let answer = async { Ok(send!(client.node_remove(&node, &body))) }.await;
    app.out.item(&or_occupants(app, client, &node, answer).await?, CHANGED)
}

pub async fn drain(app: &App, client: &Client, reasoned: Reasoned, wait: &Wait) -> Result {
    let (node, body) = because(client, &reasoned).await?;
    let answer = async { Ok(send!(client.node_drain(&node, &body))) }.await;
    let draining = or_occupants(app, client, &node, answer).await?;
    let Some(limit) = wait.limit() else {
        app.out.item(&draining, CHANGED)?;
        print_occupants(app, &send!(client.node_get(&node)));
        return Ok(());
    };
    let deadline = Instant::now() + limit;
    // The newest such task is the one that was just queued.
    let state = None;
    let queued: Vec<types::NodeTask> = pages!(Some(1), |page| client.task_list(
        page.cursor(),
        Some(&node),
        page.size(),
        state,
        Some("node.drain")
    ))?;
    if let Some(task) = queued.into_iter().next() {
        tasks::succeeded(&tasks::follow(client, task, limit).await?)?;
    }
    emptied(app, client, &node, deadline, &reasoned.node).await
}

/// A refused change of a node: whose machines stand in its way is printed before the refusal.
async fn or_occupants<T>(app: &App, client: &Client, node: &str, answer: Result<T>) -> Result<T> {
    if answer.as_ref().is_err_and(|failure| failure.exit == Exit::Conflict)
        && let Ok(now) = Box::pin(client.node_get(node)).await
    {
        print_occupants(app, &now.into_inner());
    }
    answer
}

/// Prints whose work is still on the node.
fn print_occupants(app: &App, node: &types::NodeDetail) {
    if let Some(text) = occupants::in_the_way(node, occupied(&node.slots), app.ambient.now()) {
        note(&text);
    }
}

/// Waits until no slot of the node is in use.
async fn emptied(app: &App, client: &Client, node: &str, deadline: Instant, typed: &str) -> Result {
    let mut printed = None;
    loop {
        let now = send!(client.node_get(node));
        let left = occupied(&now.slots);
        if left == 0 {
            return app.out.item(&now, CHANGED);
        }
        if printed.replace(left) != Some(left) {
            print_occupants(app, &now);
        }
        if Instant::now() + POLL > deadline {
            let text = format!("{} still has {} in use", now.hostname, counted(left, "slot"));
            return Err(Failure::new(Exit::Server, text).suggest(format!(
                "The drain continues. See who holds it up with `gpuaas nodes show {typed}`."
            )));
        }
        tokio::time::sleep(POLL).await;
    }
}

fn occupied(slots: &[types::NodeSlotCount]) -> i64 {
    use types::SlotState::{Cleaning, CleanupBlocked, InUse, Reserved};
    let taken = [Reserved, InUse, Cleaning, CleanupBlocked];
    slots.iter().filter(|slot| taken.contains(&slot.state)).map(|slot| slot.count).sum()
}
