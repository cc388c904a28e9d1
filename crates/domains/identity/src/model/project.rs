//! Projects, and what keeps one from being deleted.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Problem,
    ids::{OrgId, ProjectId},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

/// The project that every new organization has.
pub const DEFAULT_PROJECT: &str = "default";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Project {
    pub id: ProjectId,
    pub org_id: OrgId,
    pub name: String,
    pub slug: String,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Something that lives in a project: as long as it does, the project cannot be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectResident {
    pub kind: String,
    pub id: Uuid,
    pub name: String,
    pub state: String,
}

/// What lives in a project: how many of each kind, and the first of them by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectResidents {
    pub counts: Vec<(String, i64)>,
    pub first: Vec<ProjectResident>,
}

/// For each kind: one, several, and how to get rid of it.
const RESIDENT_KINDS: [(&str, &str, &str, &str); 4] = [
    ("allocation", "allocation", "allocations", "release its allocations and wait until they are released"),
    ("service_account", "service account", "service accounts", "delete its service accounts"),
    ("budget", "budget", "budgets", "remove its budget"),
    ("meter", "running meter", "running meters", "ask a platform administrator to close its meters"),
];

impl ProjectResidents {
    /// Refuses a deletion while anything lives in the project, and names it.
    pub fn check_empty(&self) -> Result<(), Problem> {
        if self.counts.is_empty() {
            return Ok(());
        }
        let known = |kind: &str| RESIDENT_KINDS.iter().find(|(name, ..)| *name == kind);
        let counted = self.counts.iter().map(|(kind, count)| match known(kind) {
            Some((_, one, _, _)) if *count == 1 => format!("1 {one}"),
            Some((_, _, many, _)) => format!("{count} {many}"),
            None => format!("{count} × {kind}"),
        });
        let counted = counted.collect::<Vec<_>>().join(", ");
        let steps = self.counts.iter().filter_map(|(kind, _)| known(kind).map(|(.., step)| *step));
        let steps = steps.collect::<Vec<_>>().join(", ");
        let first: Vec<_> = self.first.iter().map(ProjectResident::described).collect();
        let counts: serde_json::Map<_, _> =
            self.counts.iter().map(|(kind, count)| (kind.clone(), json!(count))).collect();
        Err(Problem::new(Code::InUse, format!("The project is not empty: it has {counted}."))
            .detail("counts", counts)
            .detail("residents", first)
            .suggest(format!("To delete the project, first {steps}.")))
    }
}

impl ProjectResident {
    fn described(&self) -> serde_json::Value {
        json!({ "kind": self.kind, "id": self.public_id(), "name": self.name, "state": self.state })
    }

    /// The id as the API shows it.
    fn public_id(&self) -> String {
        use kernel::ids::{AllocationId, ServiceAccountId};
        match self.kind.as_str() {
            "allocation" => AllocationId::from(self.id).to_string(),
            "service_account" => ServiceAccountId::from(self.id).to_string(),
            "budget" => ProjectId::from(self.id).to_string(),
            _ => self.id.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_and_names_what_lives_there_and_says_what_to_do() {
        assert_eq!(ProjectResidents::default().check_empty(), Ok(()));
        let resident = ProjectResident {
            kind: "allocation".to_owned(),
            id: Uuid::from_u128(1),
            name: "train".to_owned(),
            state: "active".to_owned(),
        };
        let counts = vec![("allocation".to_owned(), 2), ("service_account".to_owned(), 1)];
        let refused = ProjectResidents { counts, first: vec![resident] }.check_empty().unwrap_err();
        assert_eq!(refused.code, Code::InUse);
        assert_eq!(refused.message, "The project is not empty: it has 2 allocations, 1 service account.");
        assert_eq!(refused.details["residents"][0]["name"], "train");
        assert_eq!(refused.details["counts"]["allocation"], 2);
        let steps = refused.suggestion.unwrap();
        assert!(steps.contains("release its allocations") && steps.contains("delete its service accounts"));
    }
}
