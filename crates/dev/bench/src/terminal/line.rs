//! What is typed into every terminal, and how its answers are timed.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

/// What is printed before a program waits for keys. The quotes keep it apart from its own echo.
const READY: &[u8] = b"ready\r\n";
/// A line of the stream as it is printed: with a carriage return that the file does not have.
const PRINTED_LINE: usize = 101;
const KEY: u8 = b'k';

/// A shell behind a terminal of some kind.
pub trait Terminal {
    fn type_in(&mut self, keys: &[u8]) -> anyhow::Result<()>;

    /// The next output, as soon as there is any.
    fn read(&mut self) -> anyhow::Result<&[u8]>;
}

/// How many lines of the stream are so many bytes of output, as nearly as whole lines can be.
pub fn count_lines(bytes: u64) -> u64 {
    bytes / PRINTED_LINE as u64
}

/// Makes a file of so many lines, which is printed for every Enter.
pub fn start_stream(terminal: &mut dyn Terminal, lines: u64) -> anyhow::Result<()> {
    let text = "0123456789".repeat(10);
    // With its end of line it is as long as the file's lines are.
    let text = &text[..PRINTED_LINE - 2];
    start(
        terminal,
        &format!(
            "yes {text} | head -n {lines} >stream; exec sh -c 'stty -echo; printf \"re\"\"ady\\n\"; while read -r _; do cat stream; done'\n"
        ),
    )
}

/// Starts a program that prints every key.
pub fn start_echo(terminal: &mut dyn Terminal) -> anyhow::Result<()> {
    start(terminal, "exec sh -c 'stty raw -echo; printf \"re\"\"ady\\r\\n\"; exec cat'\n")
}

fn start(terminal: &mut dyn Terminal, line: &str) -> anyhow::Result<()> {
    terminal.type_in(line.as_bytes())?;
    let mut printed = Vec::new();
    while !printed.ends_with(READY) {
        printed.extend_from_slice(
            terminal.read().with_context(|| {
                format!("the program did not start: {}", String::from_utf8_lossy(&printed))
            })?,
        );
    }
    Ok(())
}

/// From Enter to the last byte of the stream.
pub fn time_stream(terminal: &mut dyn Terminal, lines: u64) -> anyhow::Result<Duration> {
    let all = lines * PRINTED_LINE as u64;
    let begun = Instant::now();
    terminal.type_in(b"\n")?;
    let mut came = 0;
    while came < all {
        came += terminal.read().with_context(|| format!("after {came} of {all} bytes"))?.len() as u64;
    }
    ensure!(came == all, "{came} bytes came, and {all} were printed");
    Ok(begun.elapsed())
}

/// From each key to its echo, one key after the other.
pub fn time_echoes(terminal: &mut dyn Terminal, presses: u32) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..presses {
        let begun = Instant::now();
        terminal.type_in(&[KEY])?;
        let echo = terminal.read()?;
        ensure!(echo == [KEY], "a key was answered by {echo:?}");
        times.push(begun.elapsed());
    }
    Ok(times)
}
