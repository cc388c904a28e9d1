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
    NodeInterrupted = "node_interrupted", "the agent of the machine stopped during the operation";
    NodeBusy = "node_busy", "the machine was not ready for it";
    NodeDrained = "node_drained", "the machine was being drained";
    NodeFailed = "node_failed", "the operation failed on the machine";
    NodeRefused = "node_refused", "the machine refused the operation";
    TaskCancelled = "task_cancelled", "an operator cancelled the operation";
    AnswerUnreadable = "answer_unreadable", "the machine sent an invalid result";
    CheckFailed = "check_failed", "the machine failed its health check";
    GpusMissing = "gpus_missing", "not all GPUs work";
    NotProvenClean = "not_proven_clean", "the machine could not prove that it is clean";
    NotReimaged = "not_reimaged", "the machine could not be reinstalled";
    NoNewKey = "no_new_key", "the machine did not renew its key in time";
    StateChanged = "state_changed", "the allocation is no longer in the required state";
    NotOrdered = "not_ordered", "the operation has no work order; request it again";
    OrderExpired = "order_expired", "the authorization has expired; request the operation again";
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

/// Why a run failed, as the allocation stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndReason {
    pub code: FailureCode,
    /// What people read.
    pub sentence: String,
}

impl EndReason {
    /// `cancel_reason` is the reason of the cancel request; users see it unchanged.
    pub fn of_run(failure: Option<&RunFailure>, cancel_reason: Option<&str>) -> Self {
        let code = failure.map_or(FailureCode::Internal, |failure| failure.code.clone());
        let internal = "an internal error; contact the operators";
        let sentence = match &code {
            FailureCode::Cancelled => cancel_reason.unwrap_or("it was cancelled"),
            FailureCode::DeadlineExceeded | FailureCode::TimedOut => "the workflow timed out",
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
