//! Ctrl-C and SIGTERM: noted here, acted on by whoever waits, so that everything that was started is stopped.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use anyhow::Context;
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

const NONE: u8 = 0;
const INTERRUPT: u8 = 1;
const TERMINATE: u8 = 2;
static RECEIVED: AtomicU8 = AtomicU8::new(NONE);

/// Begins to note signals instead of dying from them.
pub fn watch() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let guard = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt()).context("watch for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("watch for SIGTERM")?;
    drop(guard);
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                let received = tokio::select! {
                    _ = interrupt.recv() => INTERRUPT,
                    _ = terminate.recv() => TERMINATE,
                };
                RECEIVED.store(received, Ordering::Relaxed);
            }
        });
    });
    Ok(())
}

/// The signal that asked us to end, if one has.
pub fn received() -> Option<Signal> {
    match RECEIVED.load(Ordering::Relaxed) {
        INTERRUPT => Some(Signal::SIGINT),
        TERMINATE => Some(Signal::SIGTERM),
        _ => None,
    }
}
