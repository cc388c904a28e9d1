//! A full-screen program, whatever carries it dies: what a person sees is right.

use testkit::{ServerOptions, World};

use super::{
    client::Terminal,
    drawn_screen::{DrawnScreen, Editor, load_again},
    slice,
};

/// For so long nothing carries the terminal, at least.
const RESTART_SECONDS: u32 = 5;

#[tokio::test]
async fn an_editor_outlives_its_gateway_and_the_control_plane_and_the_screen_is_right() {
    let mut world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let gateway = ServerOptions { roles: "terminal-gateway".to_owned(), ..ServerOptions::default() };
    let mut second = world.replica_with(gateway).await;
    let mut terminal = Terminal::open(&second, &ann, &id).await;
    let mut screen = DrawnScreen::of_client();
    let mut editor = Editor::open(&mut terminal, &mut screen).await;
    editor.insert(&mut terminal, &mut screen, "added before").await;

    second.kill();
    let mut terminal = terminal.reattach(&world.server, &ann, &id).await;
    editor.insert(&mut terminal, &mut screen, "added after the death of the gateway").await;

    // The editor draws while the control plane is away.
    let line = "added during the restart";
    editor.insert_later(&mut terminal, &mut screen, RESTART_SECONDS, line).await;
    world.server.kill();
    world.server.spawn();
    world.server.ready().await;
    let mut terminal = terminal.reattach(&world.server, &ann, &id).await;
    editor.until_shown(&mut terminal, &mut screen).await;
    editor.insert(&mut terminal, &mut screen, "added after the restart").await;

    // What the node keeps draws the same.
    let mut reloaded = load_again(&terminal, &world.server, &ann, &id).await;
    let mut drawn_anew = DrawnScreen::of_client();
    let is_same = |drawn: &DrawnScreen| drawn.picture() == screen.picture();
    drawn_anew.until(&mut reloaded, "the same screen, drawn anew", is_same).await;

    reloaded.type_in(":wq\r").await;
    drawn_anew.until(&mut reloaded, "the prompt", |screen| !screen.is_alternate()).await;
    let saved = reloaded.run("sed -n 101,104p text").await.replace("\r\n", "/");
    let expected =
        "added before/added after the death of the gateway/added during the restart/added after the restart";
    assert_eq!(saved, expected);
}
