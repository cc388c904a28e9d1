//! The names of whom something belongs to.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerLabel {
    pub org_name: String,
    pub project_name: String,
    /// The e-mail address of a person (the name, when there is none), or the name of a service account.
    pub owner: String,
}
