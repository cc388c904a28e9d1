//! What a person sees: bytes as an emulator draws them.

use std::time::Duration;

use serde_json::json;
use testkit::{ServerOptions, World};
use tokio::time::Instant;

use super::{
    client::{SOON, Said, Terminal, token},
    slice,
};

/// As large as the terminal of the client.
const SIZE: (u16, u16) = (24, 80);

struct Screen(vt100::Parser);

impl Screen {
    fn new() -> Self {
        let [rows, columns] = [SIZE.0, SIZE.1].map(|size| size.try_into().unwrap());
        Self(vt100::Parser::new(rows, columns, 0))
    }

    /// Draws what has come and is not drawn yet.
    fn draw(&mut self, terminal: &mut Terminal) {
        self.0.process(&terminal.output);
        terminal.forget_output();
    }

    /// Reads until the screen is as it should be.
    async fn until(
        &mut self,
        terminal: &mut Terminal,
        what: &str,
        is_right: impl Fn(&vt100::Screen) -> bool,
    ) {
        let deadline = Instant::now() + SOON;
        loop {
            self.draw(terminal);
            if is_right(self.0.screen()) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}:\n{}", self.0.screen().contents());
            let said = tokio::time::timeout(Duration::from_millis(200), terminal.next()).await;
            assert!(matches!(said, Ok(Said::Output) | Err(_)), "{said:?} instead of {what}");
        }
    }
}

fn lines(screen: &vt100::Screen) -> Vec<String> {
    screen.rows(0, SIZE.1).map(|line| line.trim_end().to_owned()).collect()
}

#[tokio::test]
async fn an_editor_outlives_its_gateway_and_the_screen_is_right() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let gateway = ServerOptions { roles: "terminal-gateway".to_owned(), ..ServerOptions::default() };
    let mut second = world.replica_with(gateway).await;
    let mut terminal = Terminal::open(&second, &ann, &id).await;
    terminal.run("for n in $(seq 200); do echo line $n; done > text").await;
    let mut screen = Screen::new();
    screen.draw(&mut terminal);
    terminal.type_in("vi -u NONE -N -n text\n").await;
    screen
        .until(&mut terminal, "the editor shows the file", |screen| {
            lines(screen).contains(&"line 1".to_owned())
        })
        .await;
    terminal.type_in("100Gztoadded before\x1b").await;
    let before = |screen: &vt100::Screen| lines(screen)[..3] == ["line 100", "added before", "line 101"];
    screen.until(&mut terminal, "the line that was typed", before).await;

    second.kill();
    let mut terminal = terminal.reattach(&world.server, &ann, &id).await;
    terminal.type_in("oadded after\x1b").await;
    let after = |screen: &vt100::Screen| {
        lines(screen)[..4] == ["line 100", "added before", "added after", "line 101"]
    };
    screen.until(&mut terminal, "the line that was typed after the death of the gateway", after).await;

    // A page that was loaded again has nothing, and draws the same from what the node keeps.
    let session = terminal.session.clone();
    let body = json!({ "session_id": session, "access": "take_over" });
    let (fresh, _) = token(&ann, &id, body).await;
    let mut reloaded = Terminal::attach(&world.server, &id, &fresh, session, 0).await.unwrap();
    let mut drawn_anew = Screen::new();
    drawn_anew.until(&mut reloaded, "the same screen, drawn anew", after).await;
    let cursor = |screen: &Screen| screen.0.screen().cursor_position();
    assert_eq!(lines(drawn_anew.0.screen()), lines(screen.0.screen()));
    assert_eq!(cursor(&drawn_anew), cursor(&screen));

    reloaded.type_in(":wq\r").await;
    drawn_anew.until(&mut reloaded, "the prompt", |screen| !screen.alternate_screen()).await;
    assert_eq!(reloaded.run("sed -n 101,102p text").await.replace("\r\n", "/"), "added before/added after");
}
