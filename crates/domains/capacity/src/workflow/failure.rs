//! How a workflow of an allocation fails: a code that decides, and the sentence that the people of a project read. The sentence
//! says nothing about where their machine stands; whatever else is known goes to the log and to the node's tasks.

use saga::{DomainFailure, FailureCode, RunFailure};

use crate::store::allocations::Along;

macro_rules! failures {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $sentence:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum WorkflowFailure { $($(#[$doc])* $variant),* }

        impl WorkflowFailure {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence),* }
            }
        }

        impl DomainFailure for WorkflowFailure {
            fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
            fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| code.name() == name)
            }
        }
    };
}

failures! {
    NodeSilent = "node_silent", "the machine did not answer in time";
    NodeInterrupted = "node_interrupted", "the machine stopped half-way";
    NodeBusy = "node_busy", "the machine was not ready for it";
    NodeDrained = "node_drained", "the machine was being taken out of service";
    NodeFailed = "node_failed", "the machine could not do it";
    NodeRefused = "node_refused", "the machine refused it";
    TaskCancelled = "task_cancelled", "an operator stopped it";
    AnswerUnreadable = "answer_unreadable", "the machine gave an answer that makes no sense";
    CheckFailed = "check_failed", "the machine did not pass its check";
    GpusMissing = "gpus_missing", "not all GPUs work";
    NotProvenClean = "not_proven_clean", "the machine could not prove that it is clean";
    NotReimaged = "not_reimaged", "the machine could not be installed anew";
    NoNewKey = "no_new_key", "the machine has not made a new key for itself in time";
    StateChanged = "state_changed", "the allocation is no longer in the state that this needs";
    NotOrdered = "not_ordered", "nobody has ordered it; ask for it again";
    OrderExpired = "order_expired", "the time in which it was authorised is over; ask for it again";
}

impl WorkflowFailure {
    /// Whether the machine itself is what did not work.
    pub const fn is_machine_fault(self) -> bool {
        matches!(
            self,
            Self::CheckFailed
                | Self::GpusMissing
                | Self::NodeFailed
                | Self::AnswerUnreadable
                | Self::NodeInterrupted
        )
    }
}

/// How a run ended badly, as an allocation keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndReason {
    pub code: FailureCode,
    /// What people read.
    pub sentence: String,
}

impl EndReason {
    /// `cancel_reason` is what somebody said who wanted the run taken back: their words go to the people as they are.
    pub fn of_run(failure: Option<&RunFailure>, cancel_reason: Option<&str>) -> Self {
        let code = failure.map_or(FailureCode::Internal, |failure| failure.code.clone());
        let internal = "an internal error; it is being looked at";
        let sentence = match &code {
            FailureCode::Cancelled => cancel_reason.unwrap_or("it was cancelled"),
            FailureCode::DeadlineExceeded | FailureCode::TimedOut => "the run took longer than it may",
            FailureCode::Refused | FailureCode::Internal | FailureCode::Bug => internal,
            FailureCode::Unknown => cancel_reason.unwrap_or(internal),
            FailureCode::Domain(_) => {
                code.domain::<WorkflowFailure>().map_or(internal, WorkflowFailure::sentence)
            }
        };
        Self { sentence: sentence.to_owned(), code }
    }

    /// As it goes along with a change of the allocation's state.
    pub fn along(&self) -> Along<'_> {
        Along { reason: &self.sentence, cause: None, failure_code: Some(self.code.name()) }
    }

    /// What is not known may have been the machine: doubting it costs a probe.
    pub fn is_machine_fault(&self) -> bool {
        self.code == FailureCode::Unknown || self.code.domain().is_some_and(WorkflowFailure::is_machine_fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(code: impl Into<FailureCode>) -> RunFailure {
        RunFailure { code: code.into(), text: "begin: connection to db-7.internal lost".to_owned() }
    }

    #[test]
    fn codes_are_unique_and_no_codes_of_the_engine() {
        for code in WorkflowFailure::ALL {
            assert_eq!(WorkflowFailure::parse(code.name()), Some(*code));
            assert_eq!(FailureCode::read(code.name().to_owned()).domain(), Some(*code));
        }
    }

    #[test]
    fn people_read_sentences_of_codes_and_the_words_of_a_cancellation() {
        let read = |failure: &RunFailure, cancel| EndReason::of_run(Some(failure), cancel).sentence;
        let silent = failed(WorkflowFailure::NodeSilent);
        assert_eq!(read(&silent, None), WorkflowFailure::NodeSilent.sentence());
        // Somebody cancelled what had failed by itself.
        assert_eq!(read(&silent, Some("too slow")), WorkflowFailure::NodeSilent.sentence());
        assert_eq!(read(&failed(FailureCode::Cancelled), Some("too slow")), "too slow");
        for code in [FailureCode::Internal, FailureCode::Bug, FailureCode::Domain("of_tomorrow".into())] {
            assert!(read(&failed(code), None).starts_with("an internal error"));
        }
        assert!(EndReason::of_run(None, None).sentence.starts_with("an internal error"));
    }

    #[test]
    fn only_the_machines_own_faults_doubt_it() {
        assert!(EndReason::of_run(Some(&failed(WorkflowFailure::GpusMissing)), None).is_machine_fault());
        assert!(!EndReason::of_run(Some(&failed(WorkflowFailure::NodeSilent)), None).is_machine_fault());
        assert!(!EndReason::of_run(Some(&failed(FailureCode::Cancelled)), None).is_machine_fault());
        assert!(EndReason::of_run(Some(&failed(FailureCode::Unknown)), None).is_machine_fault());
    }
}
