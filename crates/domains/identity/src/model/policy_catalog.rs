//! The catalog of policy keys as a page of the documentation.

use kernel::policy::{ALL, Definition, Kind, Narrowing, UNLIMITED};

use super::{
    policy::{only_global, tenant_may_set},
    sensitive_change::policy_needs_second_person,
};

/// `docs/policies.md`.
pub fn catalog_markdown() -> String {
    let mut out = String::from(
        "# Policy catalog\n\nGenerated from `kernel::policy`; do not edit. The value of a key is that of the narrowest scope \
         whose value is allowed: of the platform, the organization, the project and the user. `gpuaas policy explain KEY` shows the \
         effective value and the scope that it comes from; `gpuaas policy set KEY VALUE` sets it.\n\n\
         - **bound**: a value of a wider scope is a limit that narrower scopes can only make stricter (a smaller integer, \
         `false`, a choice further to the right). The value of another key can be overridden by \
         the same or a higher authority, and by anybody who may set it when it is marked as a default.\n\
         - **set by**: who may set the key, besides platform administrators. Keys with *two administrators* are changed by \
         `gpuaas platform changes propose-policy`.\n\n\
         | key | values | default | scopes | set by | what it does |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for definition in ALL {
        out += &format!(
            "| `{}` | {} | {} | {} | {} | {} |\n",
            definition.key,
            values(definition),
            default(definition),
            scopes(definition),
            set_by(definition),
            definition.purpose,
        );
    }
    out
}

fn number(value: i64) -> String {
    if value == UNLIMITED { "unlimited".to_owned() } else { value.to_string() }
}

fn values(definition: &Definition) -> String {
    let values = match definition.kind {
        Kind::Integer { min, max, .. } => format!("integer, {min} to {}", number(max)),
        Kind::Boolean { .. } => "boolean".to_owned(),
        Kind::Choice { choices, .. } => {
            choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", ")
        }
    };
    if definition.narrowing == Narrowing::OnlyStricter { format!("{values}; bound") } else { values }
}

fn default(definition: &Definition) -> String {
    match definition.kind {
        Kind::Integer { default, .. } => number(default),
        Kind::Boolean { default } => default.to_string(),
        Kind::Choice { default, .. } => format!("`{default}`"),
    }
}

fn scopes(definition: &Definition) -> &'static str {
    if only_global(definition.key) { "platform" } else { "all" }
}

fn set_by(definition: &Definition) -> &'static str {
    if policy_needs_second_person(definition.key) {
        "two administrators"
    } else if tenant_may_set(definition.key) {
        "the organization"
    } else {
        "–"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_one_row_with_its_default() {
        let page = catalog_markdown();
        for definition in ALL {
            let rows: Vec<&str> =
                page.lines().filter(|line| line.starts_with(&format!("| `{}` |", definition.key))).collect();
            assert_eq!(rows.len(), 1, "{}", definition.key);
            assert!(rows[0].contains(&format!("| {} |", default(definition))), "{}", rows[0]);
        }
    }
}
