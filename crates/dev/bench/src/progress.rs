//! What is being measured, for whoever waits: section, step n of m, time since the section began and expected in all.

use std::time::{Duration, Instant};

pub struct Progress {
    section: &'static str,
    steps: usize,
    begun: usize,
    start: Instant,
    expected: Duration,
}

impl Progress {
    pub fn new(section: &'static str, steps: usize, expected: Duration) -> Self {
        Self { section, steps, begun: 0, start: Instant::now(), expected }
    }

    /// Prints which step begins.
    pub fn step(&mut self, what: &str) {
        self.begun += 1;
        eprintln!("{}", self.line(what, self.start.elapsed()));
    }

    fn line(&self, what: &str, elapsed: Duration) -> String {
        let Self { section, steps, begun, expected, .. } = self;
        format!("[{section} {begun} of {steps}, {} of about {}] {what}", clock(elapsed), clock(*expected))
    }
}

/// Minutes and seconds.
pub fn clock(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_says_where_it_is_and_how_long_all_of_it_takes() {
        let mut progress = Progress::new("fleet", 3, Duration::from_secs(270));
        progress.step("handshakes");
        let line = progress.line("handshakes", Duration::from_secs(65));
        assert_eq!(line, "[fleet 1 of 3, 1:05 of about 4:30] handshakes");
    }
}
