//! What a person sees: bytes as an emulator draws them.

use std::{num::NonZeroU16, time::Duration};

use recording::Event;
use serde_json::{Value, json};
use testkit::{Server, Tenant};
use tokio::time::Instant;

use super::client::{SOON, Said, Terminal, token};

pub struct DrawnScreen(vt100::Parser);

fn size(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

impl DrawnScreen {
    pub fn new(rows: u16, columns: u16) -> Self {
        Self(vt100::Parser::new(size(rows), size(columns), 0))
    }

    /// As large as the terminal of the client when it attaches.
    pub fn of_client() -> Self {
        Self::new(24, 80)
    }

    /// An asciicast at the sizes that are recorded in it, up to this byte of output.
    pub fn of_cast(file: &[u8], end: u64) -> Self {
        let mut lines = file.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let header: Value = serde_json::from_slice(lines.next().unwrap()).unwrap();
        let number = |name: &str| header[name].as_u64().unwrap().try_into().unwrap();
        let mut screen = Self::new(number("height"), number("width"));
        let mut left = usize::try_from(end).unwrap();
        for line in lines {
            match Event::parse(line).expect("an event").1 {
                Event::Output(text) => {
                    let piece = text.len().min(left);
                    screen.process(&text.as_bytes()[..piece]);
                    left -= piece;
                }
                Event::Resize { columns, rows } if left > 0 => screen.resize(rows, columns),
                _ => {}
            }
        }
        screen
    }

    pub fn process(&mut self, bytes: &[u8]) {
        self.0.process(bytes);
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.0.set_size(size(rows), size(columns));
    }

    /// Draws what has come and is not drawn yet.
    pub fn draw(&mut self, terminal: &mut Terminal) {
        self.process(&terminal.output);
        terminal.forget_output();
    }

    pub fn lines(&self) -> Vec<String> {
        let columns = self.0.screen().size().1;
        self.0.screen().rows(0, columns.get()).map(|line| line.trim_end().to_owned()).collect()
    }

    /// All that can be seen, colours and the cursor included.
    pub fn picture(&self) -> (String, (u16, u16)) {
        (self.0.screen().contents_formatted(), self.0.screen().cursor_position())
    }

    pub fn is_alternate(&self) -> bool {
        self.0.screen().alternate_screen()
    }

    /// Reads until the screen is as it should be.
    pub async fn until(&mut self, terminal: &mut Terminal, what: &str, is_right: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + SOON;
        loop {
            self.draw(terminal);
            if is_right(self) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}:\n{}", self.0.screen().contents());
            let said = tokio::time::timeout(Duration::from_millis(200), terminal.next()).await;
            assert!(matches!(said, Ok(Said::Output) | Err(_)), "{said:?} instead of {what}");
        }
    }
}

/// An editor on a file of numbered lines, line 100 at the top, with lines that were put after that one.
pub struct Editor {
    inserted: Vec<String>,
    /// Where the cursor stands in the last one.
    column: usize,
}

impl Editor {
    pub async fn open(terminal: &mut Terminal, screen: &mut DrawnScreen) -> Self {
        terminal.run("for n in $(seq 200); do echo line $n; done > text").await;
        screen.draw(terminal);
        terminal.type_in("vi -u NONE -N -n text\n").await;
        let shows_file = |screen: &DrawnScreen| screen.lines().contains(&"line 1".to_owned());
        screen.until(terminal, "the editor shows the file", shows_file).await;
        terminal.type_in("100Gzt").await;
        Self { inserted: Vec::new(), column: 0 }
    }

    /// Types a line below the last one, and sees it.
    pub async fn insert(&mut self, terminal: &mut Terminal, screen: &mut DrawnScreen, line: &str) {
        terminal.type_in(&format!("o{line}\x1b")).await;
        self.inserted.push(line.to_owned());
        self.column = line.len() - 1;
        self.until_shown(terminal, screen).await;
    }

    /// The editor is asked for a line that it inserts, and draws, so many seconds later.
    pub async fn insert_later(
        &mut self,
        terminal: &mut Terminal,
        screen: &mut DrawnScreen,
        seconds: u32,
        line: &str,
    ) {
        terminal.type_in(&format!(":r !sleep {seconds}; echo '{line}'\r")).await;
        let was_asked =
            |screen: &DrawnScreen| screen.lines().iter().any(|row| row.contains(&format!("echo '{line}'")));
        screen.until(terminal, "the editor was asked for a line", was_asked).await;
        self.inserted.push(line.to_owned());
        self.column = 0;
    }

    /// Whether each row is as it must be, but for the last one, where the editor says what it does. It puts the cursor in its
    /// place when it has drawn everything.
    pub fn is_shown(&self, screen: &DrawnScreen) -> bool {
        let rows = screen.lines();
        let rows = &rows[..rows.len() - 1];
        let rest = (101..).map(|number| format!("line {number}"));
        let expected = ["line 100".to_owned()].into_iter().chain(self.inserted.iter().cloned()).chain(rest);
        let (row, column) = screen.0.screen().cursor_position();
        (usize::from(row), usize::from(column)) == (self.inserted.len(), self.column)
            && !screen.0.screen().hide_cursor()
            && screen.is_alternate()
            && rows.iter().eq(&expected.take(rows.len()).collect::<Vec<_>>())
    }

    pub async fn until_shown(&self, terminal: &mut Terminal, screen: &mut DrawnScreen) {
        let what = format!("line 100, then {:?}", self.inserted);
        screen.until(terminal, &what, |screen| self.is_shown(screen)).await;
    }
}

/// A page that was loaded again has nothing, and is given what the node keeps.
pub async fn load_again(terminal: &Terminal, server: &Server, tenant: &Tenant, machine: &str) -> Terminal {
    let session = terminal.session.clone();
    let (token, _) = token(tenant, machine, json!({ "session_id": session, "access": "take_over" })).await;
    Terminal::attach(server, machine, &token, session, 0).await.unwrap()
}
