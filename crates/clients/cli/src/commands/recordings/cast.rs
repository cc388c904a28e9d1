//! A recording as an asciicast, and played in a terminal.

use std::time::Duration;

use clap::Args;
use kernel::Ambient;
use recording::{DrawingFilter, Event, cast};

use super::{
    cast_file::CastFile,
    download::{Source, Trust},
    screen::ScreenGuard,
};
use crate::{
    failure::Result,
    output::{note, write_bytes},
};

/// How fast a recording is played.
#[derive(Args)]
pub struct Pace {
    /// Play so many times as fast.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Wait at most so many seconds between two events.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    idle_limit: f64,
}

fn number(text: &str, least: f64, most: f64) -> std::result::Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("must be a number from {least} to {most}"))
}

fn speed(text: &str) -> std::result::Result<f64, String> {
    number(text, 0.01, 1000.0)
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    number(text, 0.0, 86_400.0)
}

impl Pace {
    /// How long to wait for an event after the one before it, in microseconds since the start.
    fn wait(&self, before: u64, at: u64) -> Duration {
        let passed = Duration::from_micros(at.saturating_sub(before)).as_secs_f64();
        Duration::from_secs_f64(passed.min(self.idle_limit) / self.speed)
    }
}

/// One plain asciicast v2 file, when what it is made of is as it was recorded.
pub async fn write_file(mut source: Source<'_>, file: &str, trust: Trust, ambient: &Ambient) -> Result {
    source.verify_unless(trust).await?;
    let mut reverification = source.reverification(trust)?;
    let mut out = CastFile::open(file, ambient)?;
    while let Some(chunk) = source.chunk_reverified(&mut reverification).await? {
        out.write(cast(&chunk))?;
    }
    let verdict = source.verdict(reverification)?;
    if out.rename_into_place()? {
        note(&format!("Written to {file}."));
    }
    verdict.print_verdict("written");
    Ok(())
}

/// Without moving the cursor: it is saved and restored.
const WHOLE_SCREEN_SCROLLS: &[u8] = b"\x1b7\x1b[r\x1b8";

/// Writes output when its time has come: what of it draws. Everything is verified before it begins, and each chunk again before
/// it is shown.
pub async fn replay(mut source: Source<'_>, pace: &Pace, trust: Trust) -> Result {
    source.verify_unless(trust).await?;
    let mut reverification = source.reverification(trust)?;
    let screen = ScreenGuard::of_stdout();
    let mut filter = DrawingFilter::default();
    let mut before = 0;
    while let Some(chunk) = source.chunk_reverified(&mut reverification).await? {
        for line in cast(&chunk).split(|byte| *byte == b'\n') {
            // The first line of the file, and what was edited, is not an event.
            let Some((at, event)) = Event::parse(line) else { continue };
            tokio::time::sleep(pace.wait(before, at)).await;
            before = at;
            match event {
                Event::Output(text) => write_bytes(filter.pass(&text).as_bytes())?,
                Event::Gap { bytes } => note(&format!("\r\n[{bytes} bytes of output were lost here]\r")),
                // A scroll region of the size before would swallow what is drawn outside of it.
                Event::Resize { .. } => write_bytes(WHOLE_SCREEN_SCROLLS)?,
                Event::Input(_) | Event::Resumed | Event::Closed => {}
            }
        }
    }
    drop(screen);
    source.verdict(reverification)?.print_verdict("played");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_those_of_the_session_made_faster_and_bounded() {
        let pace = Pace { speed: 2.0, idle_limit: 3.0 };
        assert_eq!(pace.wait(1_000_000, 2_000_000), Duration::from_millis(500));
        assert_eq!(pace.wait(0, 60_000_000), Duration::from_millis(1500));
        assert_eq!(pace.wait(5, 5), Duration::ZERO);
        assert_eq!(pace.wait(6, 5), Duration::ZERO);
        assert!(speed("0").is_err() && speed("x").is_err() && speed("NaN").is_err() && speed("4").is_ok());
    }
}
