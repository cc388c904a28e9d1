//! How a new node becomes one that serves tenants.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Problem,
    ids::{NodeId, TaskId},
};
use lifecycle::{Lifecycle as _, Named as _};
use schemars::JsonSchema;
use serde::Serialize;

lifecycle::lifecycle! {
    /// Discovery only proposes; a person approves; a probe has the last word.
    OnboardingLifecycle = "node_onboarding", initial WaitingForAgent;
    states OnboardingState {
        WaitingForAgent = "waiting_for_agent", Discovering = "discovering",
        AwaitingApproval = "awaiting_approval", Validating = "validating", Done = "done", Failed = "failed",
    }
    events OnboardingEvent {
        Enrolled = "enrolled", Discovered = "discovered", DiscoveryFailed = "discovery_failed",
        Approve = "approve", Rediscover = "rediscover", Passed = "passed", ValidationFailed = "validation_failed",
        Revalidate = "revalidate",
    }
    WaitingForAgent on Enrolled => Discovering;
    Discovering on Discovered => AwaitingApproval;
    Discovering on DiscoveryFailed => Failed;
    AwaitingApproval on Approve => Validating;
    AwaitingApproval on Rediscover => Discovering;
    Validating on Passed => Done;
    Validating on ValidationFailed => Failed;
    Failed on Rediscover => Discovering;
    Failed on Revalidate => Validating;
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "NodeOnboarding")]
pub struct Onboarding {
    pub node_id: NodeId,
    pub state: OnboardingState,
    pub detail: String,
    /// The task that it waits for, or waited for last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Onboarding {
    pub fn is_done(&self) -> bool {
        self.state == OnboardingState::Done
    }

    pub fn after(&self, event: OnboardingEvent) -> Result<OnboardingState, Problem> {
        OnboardingLifecycle::next(self.state, event).ok_or_else(|| {
            let text = format!("Onboarding is {}, which does not allow {}.", self.state, event.name());
            Problem::new(Code::InvalidTransition, text).detail("onboarding", self.state.name())
        })
    }

    /// The step that a new discovery is, if it is one: a node that was onboarded is looked over again freely.
    pub fn discovery(&self) -> Result<Option<OnboardingEvent>, Problem> {
        match self.state {
            OnboardingState::WaitingForAgent => Ok(Some(OnboardingEvent::Enrolled)),
            OnboardingState::Done => Ok(None),
            _ => self.after(OnboardingEvent::Rediscover).map(|_| Some(OnboardingEvent::Rediscover)),
        }
    }

    /// The step that a new probe is, if it is one.
    pub fn validation(&self) -> Result<Option<OnboardingEvent>, Problem> {
        match self.state {
            OnboardingState::AwaitingApproval => Ok(Some(OnboardingEvent::Approve)),
            OnboardingState::Done => Ok(None),
            _ => self.after(OnboardingEvent::Revalidate).map(|_| Some(OnboardingEvent::Revalidate)),
        }
    }
}
