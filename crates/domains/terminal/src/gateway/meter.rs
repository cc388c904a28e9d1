//! What gateways measure: who is attached, how soon they are, how fast keys are answered, and what is waited for.
//!
//! Nothing is looked up or locked for each message: an attachment holds its handles, and reads the clock for a message only.
//! What is counted up is counted down when it is dropped, however an attachment ends.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use chrono::TimeDelta;
use metrics::{Gauge, Histogram};
use tokio::time::Instant;

use crate::model::session::Access;

/// What was typed and is not answered for so long has no echo: a password, or input of a program that is busy.
const ECHO_WITHIN: Duration = Duration::from_secs(30);
/// Shorter waits are not counted: every write takes a moment.
const WAIT_COUNTS_FROM: Duration = Duration::from_millis(10);

/// One in a gauge, as long as it is there.
pub struct CountedUp(Gauge);

impl CountedUp {
    pub fn new(gauge: Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for CountedUp {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// One attachment, as the metrics have it.
pub struct Meter {
    began: Instant,
    /// How long before that the token was minted.
    token_age: Duration,
    is_ready: AtomicBool,
    /// When typed bytes went to the node whose echo was not shown yet, in microseconds; zero while there are none. Meanwhile
    /// nothing else that is typed is measured.
    typed_at: AtomicU64,
    echo: Histogram,
    _attachment: CountedUp,
    /// Of the one that types.
    session: Option<CountedUp>,
}

impl Meter {
    /// `token_age`: negative when the clock of the process that minted it is ahead of this one.
    pub fn new(access: Access, token_age: TimeDelta) -> Self {
        let session = || CountedUp::new(metrics::gauge!("terminal_sessions_active"));
        Self {
            began: Instant::now(),
            token_age: token_age.to_std().unwrap_or_default(),
            is_ready: AtomicBool::new(false),
            typed_at: AtomicU64::new(0),
            echo: metrics::histogram!("terminal_echo_seconds"),
            _attachment: CountedUp::new(metrics::gauge!("terminal_attachments")),
            session: (access != Access::Watch).then(session),
        }
    }

    /// The client was told that it is attached.
    pub fn note_ready(&self) {
        if !self.is_ready.load(Ordering::Relaxed) {
            self.is_ready.store(true, Ordering::Relaxed);
            let seconds = (self.token_age + self.began.elapsed()).as_secs_f64();
            metrics::histogram!("terminal_token_to_ready_seconds").record(seconds);
        }
    }

    /// The stream to the node took typed bytes.
    pub fn note_typed(&self) {
        if self.session.is_some() && self.typed_at().is_none() {
            let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.typed_at.store(micros.max(1), Ordering::Relaxed);
        }
    }

    /// When the bytes were typed whose echo the next output is. It is asked when output arrives: what is typed while that is
    /// sent to the client is answered by what comes later.
    pub fn typed_at(&self) -> Option<Duration> {
        match self.typed_at.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(Duration::from_micros(micros)),
        }
    }

    /// The client's socket took output, before whose arrival these bytes were typed.
    pub fn note_echo(&self, typed_at: Duration) {
        self.typed_at.store(0, Ordering::Relaxed);
        let latency = self.began.elapsed().saturating_sub(typed_at);
        if latency < ECHO_WITHIN {
            self.echo.record(latency.as_secs_f64());
        }
    }
}

#[derive(Clone, Copy)]
pub enum WaitsFor {
    /// A window takes its output.
    TerminalClient,
    /// Chunks of the recording are stored.
    Recording,
    SshClient,
}

/// The time in which a gateway waits, from when this is made until it is dropped: who leaves while it is waited for is counted too.
pub struct Wait {
    began: Instant,
    waits_for: WaitsFor,
}

impl Wait {
    pub fn begin(waits_for: WaitsFor) -> Self {
        Self { began: Instant::now(), waits_for }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let waited = self.began.elapsed();
        if waited < WAIT_COUNTS_FROM {
            return;
        }
        // Looked up here, because it is seldom.
        let histogram = match self.waits_for {
            WaitsFor::TerminalClient => {
                metrics::histogram!("terminal_backpressure_seconds", "waits_for" => "client")
            }
            WaitsFor::Recording => {
                metrics::histogram!("terminal_backpressure_seconds", "waits_for" => "recording")
            }
            WaitsFor::SshClient => metrics::histogram!("ssh_backpressure_seconds"),
        };
        histogram.record(waited.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use metrics::{
        Counter, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit, with_local_recorder,
    };
    use tokio::time::advance;

    use super::*;

    /// What histograms were told.
    #[derive(Default)]
    struct Samples(Mutex<Vec<f64>>);

    impl HistogramFn for Samples {
        fn record(&self, value: f64) {
            self.0.lock().unwrap().push(value);
        }
    }

    struct Histograms(Arc<Samples>);

    impl Recorder for Histograms {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(Arc::clone(&self.0))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_is_counted_when_it_ends_however_it_ends() {
        let samples = Arc::new(Samples::default());
        let histograms = Histograms(Arc::clone(&samples));
        for wait_for in [WAIT_COUNTS_FROM - Duration::from_millis(1), Duration::from_secs(2)] {
            let wait = Wait::begin(WaitsFor::TerminalClient);
            advance(wait_for).await;
            with_local_recorder(&histograms, || drop(wait));
        }
        assert_eq!(*samples.0.lock().unwrap(), [2.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_echo_and_the_time_from_the_token_are_counted_once_and_not_what_has_no_echo() {
        let samples = Arc::new(Samples::default());
        let histograms = Histograms(Arc::clone(&samples));
        let meter = with_local_recorder(&histograms, || Meter::new(Access::TakeOver, TimeDelta::seconds(3)));
        advance(Duration::from_secs(1)).await;
        for _ in 0..2 {
            with_local_recorder(&histograms, || meter.note_ready());
        }
        for echo_after in [Duration::from_secs(2), ECHO_WITHIN] {
            meter.note_typed();
            advance(echo_after).await;
            meter.note_echo(meter.typed_at().unwrap());
        }
        assert_eq!(*samples.0.lock().unwrap(), [4.0, 2.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_echo_is_measured_at_a_time_and_only_of_who_types() {
        let meter = Meter::new(Access::Write, TimeDelta::zero());
        assert_eq!(meter.typed_at(), None);
        advance(Duration::from_millis(5)).await;
        meter.note_typed();
        advance(Duration::from_millis(5)).await;
        meter.note_typed();
        let typed_at = meter.typed_at();
        assert_eq!(typed_at, Some(Duration::from_millis(5)), "the first is still waited for");
        meter.note_echo(typed_at.unwrap());
        assert_eq!(meter.typed_at(), None);
        meter.note_typed();
        assert_eq!(meter.typed_at(), Some(Duration::from_millis(10)));

        let watching = Meter::new(Access::Watch, TimeDelta::seconds(-1));
        watching.note_typed();
        assert_eq!(watching.typed_at(), None);
    }
}
