//! Why a step or a run failed. The code decides what happens next; the text informs operators.

use std::{borrow::Cow, fmt};

use kernel::Failure;

/// A failure code of the domain whose saga it is: a stable name, kept in the run and read back by the domain.
pub trait DomainFailure: Sized {
    fn name(self) -> &'static str;
    fn parse(name: &str) -> Option<Self>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureCode {
    /// Somebody asked for the run to be taken back; their reason stands beside it.
    Cancelled,
    /// The run took longer than it may.
    DeadlineExceeded,
    /// An attempt of a step did not end in time.
    TimedOut,
    /// A use case refused it.
    Refused,
    /// The database or another dependency failed.
    Internal,
    /// An invariant is broken. No attempt can help.
    Bug,
    /// The release before wrote no code.
    Unknown,
    Domain(Cow<'static, str>),
}

const OWN: [FailureCode; 7] = [
    FailureCode::Cancelled,
    FailureCode::DeadlineExceeded,
    FailureCode::TimedOut,
    FailureCode::Refused,
    FailureCode::Internal,
    FailureCode::Bug,
    FailureCode::Unknown,
];

impl FailureCode {
    pub fn name(&self) -> &str {
        match self {
            Self::Cancelled => "cancelled",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::TimedOut => "timed_out",
            Self::Refused => "refused",
            Self::Internal => "internal",
            Self::Bug => "bug",
            Self::Unknown => "unknown",
            Self::Domain(name) => name,
        }
    }

    /// As it was stored.
    pub fn read(name: String) -> Self {
        OWN.into_iter().find(|own| own.name() == name).unwrap_or(Self::Domain(name.into()))
    }

    /// The domain's own code, when it is one.
    pub fn domain<C: DomainFailure>(&self) -> Option<C> {
        match self {
            Self::Domain(name) => C::parse(name),
            _ => None,
        }
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl<C: DomainFailure> From<C> for FailureCode {
    fn from(code: C) -> Self {
        Self::Domain(code.name().into())
    }
}

/// Why a run goes forward no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    pub code: FailureCode,
    /// For operators: which step, and what is known beyond the code.
    pub text: String,
}

/// How a call of a step ended badly; its transaction is rolled back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepError {
    pub code: FailureCode,
    /// What is known beyond the code, for operators.
    pub detail: String,
    /// No attempt can do better. Otherwise there is another one, as long as the step has some left.
    pub for_good: bool,
}

impl StepError {
    pub fn retry(code: impl Into<FailureCode>, detail: impl Into<String>) -> Self {
        Self { code: code.into(), detail: detail.into(), for_good: false }
    }

    pub fn fail(code: impl Into<FailureCode>, detail: impl Into<String>) -> Self {
        Self { code: code.into(), detail: detail.into(), for_good: true }
    }

    pub fn bug(detail: impl Into<String>) -> Self {
        Self::fail(FailureCode::Bug, detail)
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.detail.is_empty() { self.code.name() } else { &self.detail })
    }
}

/// A lost race or a database that is away passes; what a use case refuses and what is broken does not.
impl From<Failure> for StepError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Problem(problem) => {
                let passes = problem.code == kernel::Code::Conflict || problem.code.status() >= 500;
                Self { code: FailureCode::Refused, detail: problem.to_string(), for_good: !passes }
            }
            Failure::Internal(error) => Self::retry(FailureCode::Internal, error.to_string()),
            Failure::Bug(bug) => Self::bug(bug.to_string()),
        }
    }
}

/// A database that is away or a lost race passes; the number of attempts is the limit for what does not.
impl From<sqlx::Error> for StepError {
    fn from(error: sqlx::Error) -> Self {
        Self::retry(FailureCode::Internal, error.to_string())
    }
}

/// What we wrote ourselves cannot be read.
impl From<serde_json::Error> for StepError {
    fn from(error: serde_json::Error) -> Self {
        Self::bug(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_back_as_they_were_written() {
        let domain = FailureCode::Domain("node_silent".into());
        for code in OWN.into_iter().chain([domain]) {
            assert_eq!(FailureCode::read(code.name().to_owned()), code);
        }
    }

    #[derive(Debug, PartialEq)]
    struct NodeSilent;

    impl DomainFailure for NodeSilent {
        fn name(self) -> &'static str {
            "node_silent"
        }

        fn parse(name: &str) -> Option<Self> {
            (name == "node_silent").then_some(Self)
        }
    }

    #[test]
    fn a_domain_reads_its_own_codes_and_no_other() {
        assert_eq!(FailureCode::from(NodeSilent).domain(), Some(NodeSilent));
        assert_eq!(FailureCode::Domain("other".into()).domain::<NodeSilent>(), None);
        assert_eq!(FailureCode::Internal.domain::<NodeSilent>(), None);
        assert_eq!(FailureCode::from(NodeSilent).to_string(), "node_silent");
    }

    #[test]
    fn an_error_reads_as_its_detail_or_else_its_code() {
        assert_eq!(StepError::retry(FailureCode::TimedOut, "").to_string(), "timed_out");
        assert_eq!(StepError::fail(FailureCode::TimedOut, "late").to_string(), "late");
    }

    #[test]
    fn what_is_broken_is_not_retried() {
        assert!(StepError::from(Failure::bug("no meter")).for_good);
        assert!(!StepError::from(Failure::from(sqlx::Error::PoolTimedOut)).for_good);
        assert!(!StepError::from(Failure::from(kernel::Problem::from_code(kernel::Code::Conflict))).for_good);
        assert!(StepError::from(Failure::from(kernel::Problem::from_code(kernel::Code::NotFound))).for_good);
        assert!(
            !StepError::from(Failure::from(kernel::Problem::from_code(kernel::Code::InternalError))).for_good
        );
        assert!(!StepError::from(sqlx::Error::PoolTimedOut).for_good);
        let unreadable = StepError::from(serde_json::from_str::<u8>("x").unwrap_err());
        assert_eq!((unreadable.code, unreadable.for_good), (FailureCode::Bug, true));
    }
}
