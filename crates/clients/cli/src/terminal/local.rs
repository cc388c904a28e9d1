//! The local side: keyboard, signals, and the modes of the terminal.

use std::{collections::VecDeque, io::Stdin};

use rustix::event::PollFlags;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

use super::{
    escape::{EscapeKey, Escapes, Typed},
    protocol::Size,
    raw::{self, RawMode},
    screen::{Screen, wait_for},
};
use crate::failure::{Failure, Result, local};

/// What one read takes from the keyboard at most.
const READ_BYTES: usize = 4096;
/// Reads that wait for the program.
const WAITING_READS: usize = 4;

/// Why somebody leaves a session that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    Detached,
    /// SIGINT: Ctrl-C before the terminal is in raw mode, where it is a key like any other.
    Interrupted,
    /// SIGTERM, SIGHUP or SIGQUIT.
    Terminated,
    /// Standard input ended.
    NoKeyboard,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Text(Vec<u8>),
    Help,
    Resized,
    Leave(Leave),
}

pub struct Local {
    /// What `open` opens.
    closed: Option<Keyboard>,
    tty: Option<Stdin>,
    raw: Option<RawMode<Stdin>>,
    keys: Option<mpsc::Receiver<Vec<u8>>>,
    escapes: Escapes,
    typed: VecDeque<Typed>,
    signals: Signals,
}

enum Keyboard {
    Stdin,
    #[cfg(test)]
    Keys(mpsc::Receiver<Vec<u8>>),
}

impl Local {
    /// The terminal of this process. It is not changed yet.
    pub fn of_process(key: EscapeKey) -> Result<Self> {
        let signals = Signals::new().map_err(local("signals cannot be received"))?;
        Ok(Self { tty: Some(std::io::stdin()), ..Self::new(Keyboard::Stdin, key, signals) })
    }

    /// A keyboard without a terminal.
    #[cfg(test)]
    pub fn of_keys(keys: mpsc::Receiver<Vec<u8>>) -> Self {
        Self::new(Keyboard::Keys(keys), EscapeKey::Key(b'~'), Signals::default())
    }

    fn new(keyboard: Keyboard, key: EscapeKey, signals: Signals) -> Self {
        Self {
            closed: Some(keyboard),
            tty: None,
            raw: None,
            keys: None,
            escapes: Escapes::new(key),
            typed: VecDeque::new(),
            signals,
        }
    }

    /// Raw mode from now on, and keys are read. The former modes return with this value.
    pub fn open(&mut self) -> Result {
        self.keys = match self.closed.take() {
            Some(Keyboard::Stdin) => {
                let raw = RawMode::enter(std::io::stdin());
                self.raw = Some(raw.map_err(local("the terminal cannot be controlled"))?);
                Some(keyboard())
            }
            #[cfg(test)]
            Some(Keyboard::Keys(keys)) => Some(keys),
            None => self.keys.take(),
        };
        Ok(())
    }

    pub fn is_raw(&self) -> bool {
        self.raw.is_some()
    }

    pub fn size(&self) -> Size {
        match &self.tty {
            Some(tty) => raw::size(tty),
            None => Size { columns: 80, rows: 24 },
        }
    }

    /// What was typed and not handled yet is forgotten, and the escapes work from the next key on.
    pub fn forget_typed(&mut self) {
        self.typed.clear();
        self.escapes.line_start();
        while self.keys.as_mut().is_some_and(|keys| keys.try_recv().is_ok()) {}
    }

    /// The next event. Keys are read only where they are wanted; signals always. May be cancelled.
    pub async fn event(&mut self, wants_keys: bool) -> Event {
        loop {
            if let Some(typed) = self.typed.pop_front() {
                return match typed {
                    Typed::Text(bytes) => Event::Text(bytes),
                    Typed::Help => Event::Help,
                    Typed::Detach => Event::Leave(Leave::Detached),
                };
            }
            let keys = async {
                match &mut self.keys {
                    Some(keys) if wants_keys => keys.recv().await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                read = keys => match read {
                    Some(bytes) => self.typed.extend(self.escapes.feed(&bytes)),
                    None => return Event::Leave(Leave::NoKeyboard),
                },
                event = self.signals.event() => match event {
                    SignalEvent::Continued => self.continued(),
                    SignalEvent::Resized => return Event::Resized,
                    SignalEvent::Leave(leave) => return Event::Leave(leave),
                },
            }
        }
    }

    /// Waits until somebody leaves, while there is no connection: what is typed meanwhile is dropped.
    pub async fn left(&mut self, screen: &Screen) -> Leave {
        loop {
            match self.event(true).await {
                Event::Leave(leave) => return leave,
                Event::Help => screen.notice(&self.help()),
                Event::Text(_) | Event::Resized => {}
            }
        }
    }

    pub fn help(&self) -> String {
        self.escapes.help()
    }

    fn continued(&self) {
        if let Some(raw) = &self.raw {
            // The next read or write says it when the terminal is gone.
            let _ = raw.resume();
        }
    }
}

/// Reads standard input in a thread of its own, which ends with the process: a read of a terminal cannot be cancelled, and
/// the runtime would wait for one of its own threads.
fn keyboard() -> mpsc::Receiver<Vec<u8>> {
    let (keys, read) = mpsc::channel(WAITING_READS);
    std::thread::spawn(move || {
        let stdin = std::io::stdin();
        let mut buffer = [0; READ_BYTES];
        loop {
            match rustix::io::read(&stdin, &mut buffer) {
                Ok(count @ 1..) => {
                    let bytes = buffer.get(..count).unwrap_or_default().to_vec();
                    if keys.blocking_send(bytes).is_err() {
                        return;
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) if wait_for(&stdin, PollFlags::IN).is_ok() => {}
                // The terminal is gone.
                Ok(_) | Err(_) => return,
            }
        }
    });
    read
}

enum SignalEvent {
    Resized,
    Continued,
    Leave(Leave),
}

#[derive(Default)]
struct Signals {
    all: Vec<(Signal, fn() -> SignalEvent)>,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let resumed = SignalKind::from_raw(rustix::process::Signal::CONT.as_raw());
        let events: [(SignalKind, fn() -> SignalEvent); 6] = [
            (SignalKind::window_change(), || SignalEvent::Resized),
            (resumed, || SignalEvent::Continued),
            (SignalKind::interrupt(), || SignalEvent::Leave(Leave::Interrupted)),
            (SignalKind::terminate(), || SignalEvent::Leave(Leave::Terminated)),
            (SignalKind::hangup(), || SignalEvent::Leave(Leave::Terminated)),
            (SignalKind::quit(), || SignalEvent::Leave(Leave::Terminated)),
        ];
        let listen = |(kind, event)| Ok((signal(kind)?, event));
        Ok(Self { all: events.into_iter().map(listen).collect::<std::io::Result<_>>()? })
    }

    /// May be cancelled: a signal stays until somebody asks for it.
    async fn event(&mut self) -> SignalEvent {
        std::future::poll_fn(|context| {
            for (signal, event) in &mut self.all {
                if signal.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(event());
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// Whether the program can be used here at all.
pub fn require_terminal() -> Result {
    use std::io::IsTerminal as _;
    if std::io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::client("standard input is not a terminal")
        .suggest("Run `gpuaas terminal` from an interactive shell; it has no use for a pipe or a file."))
}
