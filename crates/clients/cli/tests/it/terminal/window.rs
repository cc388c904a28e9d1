//! The program on a terminal that a test looks at and types on.

use std::{
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use pty_process::{OwnedWritePty, Pts, Size};
use rustix::termios::tcgetattr;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Child,
    sync::Notify,
    task::JoinHandle,
    time::timeout,
};

use super::gateway::{ALLOCATION, Gateway, IN_TOKENS, PROJECT};
use crate::kit::Gpuaas;

const TIME_LIMIT: Duration = Duration::from_secs(60);

pub struct Window {
    pub child: Child,
    /// The home of the program.
    _person: Gpuaas,
    keys: OwnedWritePty,
    terminal: Pts,
    shown: Arc<Shown>,
    reader: JoinHandle<()>,
    modes: String,
}

#[derive(Default)]
struct Shown {
    bytes: Mutex<Vec<u8>>,
    more: Notify,
}

/// The modes of a terminal.
fn modes(terminal: &Pts) -> String {
    let modes = tcgetattr(terminal).unwrap();
    format!(
        "{:?} {:?} {:?} {:?}",
        modes.input_modes, modes.output_modes, modes.control_modes, modes.local_modes
    )
}

pub fn person(gateway: &Gateway) -> Gpuaas {
    Gpuaas::new(&gateway.base).env("GPUAAS_TOKEN", "sample").env("GPUAAS_PROJECT", PROJECT)
}

impl Window {
    pub fn open(gateway: &Gateway, more: &[&str]) -> Self {
        Self::open_with(gateway, more, None)
    }

    /// Standard output may be something else than the terminal.
    pub fn open_with(gateway: &Gateway, more: &[&str], output: Option<Stdio>) -> Self {
        let (pty, terminal) = pty_process::open().unwrap();
        pty.resize(Size::new(30, 100)).unwrap();
        let modes = modes(&terminal);
        let person = person(gateway);
        let child = person.start_on(&terminal, &[&["terminal", ALLOCATION], more].concat(), output);
        let (mut screen, keys) = pty.into_split();
        let shown = Arc::new(Shown::default());
        let seen = shown.clone();
        let reader = tokio::spawn(async move {
            let mut piece = [0; 4096];
            // A terminal that nobody holds any more is an error.
            while let Ok(count @ 1..) = screen.read(&mut piece).await {
                seen.bytes.lock().unwrap().extend_from_slice(&piece[..count]);
                seen.more.notify_one();
            }
        });
        Self { child, _person: person, keys, terminal, shown, reader, modes }
    }

    pub async fn enter(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        self.keys.resize(Size::new(rows, columns)).unwrap();
    }

    pub fn is_raw(&self) -> bool {
        modes(&self.terminal) != self.modes
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.bytes.lock().unwrap()).into_owned()
    }

    /// Waits until the text is shown.
    pub async fn shows(&self, text: &str) {
        let wait = async {
            while !self.text().contains(text) {
                self.shown.more.notified().await;
            }
        };
        if timeout(TIME_LIMIT, wait).await.is_err() {
            panic!("{text:?} is not shown, but {:?}", self.text());
        }
    }

    /// Takes the terminal away, as when its window is closed.
    pub fn hang_up(self) -> Child {
        self.reader.abort();
        self.child
    }

    /// Waits for the end: the exit code, and all that was shown. The terminal has its modes again, and no token was shown.
    pub async fn end(mut self) -> (i32, String) {
        let status = timeout(TIME_LIMIT, self.child.wait()).await.expect("the program ends in time").unwrap();
        assert_eq!(modes(&self.terminal), self.modes, "the modes are restored: {}", self.text());
        drop(self.terminal);
        timeout(TIME_LIMIT, self.reader).await.expect("the terminal ends in time").unwrap();
        let text = String::from_utf8_lossy(&self.shown.bytes.lock().unwrap()).into_owned();
        assert!(!text.contains(IN_TOKENS), "{text}");
        (status.code().unwrap_or(-1), text)
    }
}
