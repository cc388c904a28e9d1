//! What windows that watch a recorded session see of its last output, when the one that types has gone.

use serde_json::json;
use testkit::World;

use super::{
    client::{Terminal, token},
    slice,
};

/// A window that watches sees output when it is recorded, of which its node is told a moment later: here whoever typed is gone
/// before that.
#[tokio::test]
async fn who_watches_sees_the_last_output_however_the_one_who_typed_has_gone() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let server = &world.server;
    let mut writer = Terminal::open(server, &ann, &id).await;
    writer.run("true").await;
    let body = json!({ "session_id": writer.session, "access": "watch" });
    let (text, session) = token(&ann, &id, body).await;
    let mut watcher = Terminal::attach(server, &id, &text, session, 0).await.expect("a window that watches");
    for way in ["cut-off", "leaves", "taken-over"] {
        let body = json!({ "session_id": writer.session, "access": "take_over" });
        let (text, session) = token(&ann, &id, body).await;
        writer.type_in(&format!("echo last-of''-{way}\n")).await;
        let last = format!("last-of-{way}\r\n");
        writer.until(&last).await;
        let received = writer.received;
        let taken_over = match way {
            "cut-off" => {
                drop(writer);
                None
            }
            "leaves" => {
                writer.control(json!({ "type": "detach" })).await;
                None
            }
            _ => Some(Terminal::attach(server, &id, &text, session.clone(), received).await),
        };
        watcher.until(&last).await;
        writer = match taken_over {
            Some(attached) => attached,
            None => Terminal::attach(server, &id, &text, session, received).await,
        }
        .expect("the terminal again");
    }
    assert_eq!(writer.run("echo hello").await, "hello");
}
