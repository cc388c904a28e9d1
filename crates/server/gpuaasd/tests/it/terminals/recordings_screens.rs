//! A full-screen program that was recorded is seen again as it was.

use serde_json::json;
use testkit::World;

use super::{
    client::Terminal,
    drawn_screen::{DrawnScreen, Editor},
    recorded::Recorded,
    recordings_cli::Person,
    slice,
};

/// A line of text that needs the larger terminal.
const WIDE: usize = 95;
const LARGE: (u16, u16) = (30, 100);

#[tokio::test]
async fn an_editor_that_was_resized_is_replayed_to_the_screen_that_was_seen() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    let mut screen = DrawnScreen::of_client();
    let mut editor = Editor::open(&mut terminal, &mut screen).await;
    terminal.type_in(":syntax match Error /seen/\r").await;
    editor.insert(&mut terminal, &mut screen, "seen on the small screen").await;
    let seen_small = (terminal.received, screen.picture());

    let (rows, columns) = LARGE;
    terminal.control(json!({ "type": "resize", "columns": columns, "rows": rows })).await;
    screen.resize(rows, columns);
    editor.until_shown(&mut terminal, &mut screen).await;
    editor.insert(&mut terminal, &mut screen, &"w".repeat(WIDE)).await;
    let seen_large = (terminal.received, screen.picture());
    // What the editor has drawn stays when it ends, and the shell prints below it.
    terminal.type_in(":set t_te=\r:q!\r").await;
    let has_prompt = |screen: &DrawnScreen| screen.lines().iter().any(|line| line.ends_with('$'));
    screen.until(&mut terminal, "the prompt", has_prompt).await;
    terminal.type_in("exit\n").await;
    assert_eq!(terminal.until_end().await["reason"], "exited");
    screen.draw(&mut terminal);
    assert!(screen.is_alternate() && screen.lines().contains(&"w".repeat(WIDE)), "{:?}", screen.lines());

    let recorded = Recorded::download(&ann, &id, &terminal.session).await;
    assert!(recorded.verify().unwrap().complete);
    let person = Person::new(&world, &ann);
    let cast = person.ok(&["download", &id, &terminal.session, "--cast", "-"]).await;
    assert_eq!(cast, recorded.cast_file());
    for (received, picture) in [seen_small, seen_large, (terminal.received, screen.picture())] {
        assert_eq!(DrawnScreen::of_cast(&cast, received).picture(), picture, "after {received} bytes");
    }
    // Whoever watches has a window of the size that it had at the end.
    let shown = person.ok(&["replay", &id, &terminal.session, "--speed", "1000"]).await;
    let mut replayed = DrawnScreen::new(rows, columns);
    replayed.process(&shown);
    assert_eq!(replayed.picture(), screen.picture());
}
