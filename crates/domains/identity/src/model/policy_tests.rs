use kernel::policy::{self, PolicyKey as _, keys};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const STORED: [PolicyScope; 4] =
    [PolicyScope::Global, PolicyScope::Org, PolicyScope::Project, PolicyScope::User];

/// Any value: often a good one, sometimes out of bounds or of the wrong type.
fn any_value(definition: &'static Definition) -> BoxedStrategy<Value> {
    let good = match definition.kind {
        Kind::Integer { min, max, .. } => {
            prop_oneof![min..=max, min..=(min.saturating_add(50)).min(max)].prop_map(|v| json!(v)).boxed()
        }
        Kind::Boolean { .. } => any::<bool>().prop_map(|v| json!(v)).boxed(),
        Kind::Choice { choices, .. } => proptest::sample::select(choices).prop_map(|v| json!(v)).boxed(),
    };
    prop_oneof![8 => good, 1 => Just(json!(-1)), 1 => Just(json!("nonsense")), 1 => Just(json!(null))].boxed()
}

fn any_case() -> impl Strategy<Value = (&'static Definition, Vec<StoredValue>)> {
    cases_of(policy::ALL.to_vec())
}

/// Of keys that narrow in one way.
fn any_case_that_is(narrowing: Narrowing) -> impl Strategy<Value = (&'static Definition, Vec<StoredValue>)> {
    cases_of(policy::ALL.iter().copied().filter(|definition| definition.narrowing == narrowing).collect())
}

fn cases_of(
    definitions: Vec<&'static Definition>,
) -> impl Strategy<Value = (&'static Definition, Vec<StoredValue>)> {
    proptest::sample::select(definitions).prop_flat_map(|definition| {
        let at_each = proptest::collection::vec(proptest::option::of(any_value(definition)), STORED.len());
        (Just(definition), at_each.prop_map(|values| stored(&values)))
    })
}

/// Bounds, each set by whoever the scope belongs to.
fn stored(values: &[Option<Value>]) -> Vec<StoredValue> {
    let pairs = STORED.into_iter().zip(values);
    let stored = |(scope, value): (_, &Option<Value>)| {
        let set_by = match scope {
            PolicyScope::Default | PolicyScope::Global => PolicyAuthority::Platform,
            PolicyScope::Org | PolicyScope::User => PolicyAuthority::Org,
            PolicyScope::Project => PolicyAuthority::Project,
        };
        value.clone().map(|value| StoredValue { scope, value, version: 1, set_by, is_default: false })
    };
    pairs.filter_map(stored).collect()
}

/// The same values as defaults.
fn as_defaults(values: &[StoredValue]) -> Vec<StoredValue> {
    values.iter().cloned().map(|v| StoredValue { is_default: true, ..v }).collect()
}

fn wanted(scope: PolicyScope, value: &Value) -> WantedValue<'_> {
    WantedValue { scope, value, is_default: false }
}

proptest! {
    #[test]
    fn what_holds_is_always_within_the_bounds((definition, values) in any_case()) {
        prop_assert_eq!(definition.check(&resolve(definition, &values).value), Ok(()));
    }

    #[test]
    fn exactly_one_value_holds_and_everything_stored_is_accounted_for((definition, values) in any_case()) {
        let explained = resolve(definition, &values);
        let effective: Vec<_> = explained.considered.iter().filter(|c| c.outcome == Outcome::Effective).collect();
        prop_assert_eq!(effective.len(), 1);
        prop_assert_eq!((&effective[0].value, effective[0].scope), (&explained.value, explained.scope));
        prop_assert_eq!(explained.considered.len(), values.len() + 1);
        prop_assert!(explained.considered.is_sorted_by_key(|c| c.scope));
    }

    #[test]
    fn the_order_in_which_values_are_found_does_not_matter((definition, values) in any_case(), seed in any::<u64>()) {
        let mut shuffled = values.clone();
        let turn = usize::try_from(seed % 7).unwrap() % shuffled.len().max(1);
        shuffled.rotate_left(turn);
        shuffled.reverse();
        prop_assert_eq!(resolve(definition, &shuffled), resolve(definition, &values));
    }

    #[test]
    fn a_free_key_follows_the_narrowest_good_value_among_defaults((definition, values) in any_case_that_is(Narrowing::Free)) {
        let values = as_defaults(&values);
        let narrowest = values.iter().filter(|v| definition.check(&v.value).is_ok()).max_by_key(|v| v.scope);
        let expected = narrowest.map_or(definition.default_value(), |v| v.value.clone());
        prop_assert_eq!(resolve(definition, &values).value, expected);
    }

    #[test]
    fn below_global_a_narrow_only_key_never_gets_looser((definition, values) in any_case_that_is(Narrowing::OnlyStricter)) {
        let mut outer = outside(definition, &values, PolicyScope::Org);
        for scope in [PolicyScope::Project, PolicyScope::User] {
            let inner = outside(definition, &values, scope);
            prop_assert!(definition.may_narrow(&outer, &inner), "{} then {}", outer, inner);
            outer = inner;
        }
        prop_assert!(definition.may_narrow(&outer, &resolve(definition, &values).value));
    }

    #[test]
    fn what_the_platform_set_for_a_free_key_holds_for_everybody_below((definition, values) in any_case_that_is(Narrowing::Free)) {
        let global = values.iter().find(|v| v.scope == PolicyScope::Global && definition.check(&v.value).is_ok());
        if let Some(global) = global {
            prop_assert_eq!(&resolve(definition, &values).value, &global.value);
        }
    }

    #[test]
    fn a_default_never_bounds_and_never_lifts_a_bound((definition, mut values) in any_case_that_is(Narrowing::OnlyStricter)) {
        for value in &mut values {
            value.is_default = value.scope == PolicyScope::Org;
        }
        let without: Vec<_> = values.iter().filter(|v| v.scope != PolicyScope::Org).cloned().collect();
        let narrower = values.iter().any(|v| v.scope > PolicyScope::Org && definition.check(&v.value).is_ok());
        let (with, without) = (resolve(definition, &values), resolve(definition, &without));
        if narrower && without.scope > PolicyScope::Global {
            prop_assert_eq!(with.value, without.value);
        } else {
            prop_assert!(definition.may_narrow(&without.value, &with.value));
        }
    }

    #[test]
    fn what_may_be_set_takes_effect_at_its_scope((definition, values) in any_case(), scope in 0..STORED.len(), pick in any::<u8>()) {
        let scope = STORED[scope];
        let candidates: Vec<Value> = values.iter().map(|v| v.value.clone()).chain([definition.default_value()]).collect();
        let value = candidates[usize::from(pick) % candidates.len()].clone();
        if check_set(definition, wanted(scope, &value), &values, &[Role::PlatformAdmin]).is_ok() {
            let mut after: Vec<StoredValue> = values.iter().filter(|v| v.scope < scope).cloned().collect();
            let (set_by, is_default) = (PolicyAuthority::Platform, false);
            after.push(StoredValue { scope, value: value.clone(), version: 1, set_by, is_default });
            let resolved = resolve(definition, &after);
            prop_assert_eq!((resolved.value, resolved.scope), (value, scope));
        }
    }
}

#[test]
fn an_explanation_names_the_source_and_what_it_overrode() {
    let values = stored(&[Some(json!(100)), Some(json!(8)), Some(json!(16)), Some(json!(4))]);
    let explained = resolve(keys::QUOTA_GPUS_PER_PROJECT.definition(), &values);
    assert_eq!((explained.value, explained.scope), (json!(4), PolicyScope::User));
    let outcomes: Vec<_> = explained.considered.iter().map(|c| (c.scope, c.outcome)).collect();
    assert_eq!(
        outcomes,
        [
            (PolicyScope::Default, Outcome::Overridden),
            (PolicyScope::Global, Outcome::Overridden),
            (PolicyScope::Org, Outcome::Overridden),
            (PolicyScope::Project, Outcome::NotStricter),
            (PolicyScope::User, Outcome::Effective),
        ]
    );
}

#[test]
fn the_platform_may_loosen_its_own_default_and_a_tenant_may_not() {
    let ttl = keys::TERMINAL_SESSION_MAX_TTL_SECONDS.definition();
    assert!(check_set(ttl, wanted(PolicyScope::Global, &json!(20_000)), &[], &[Role::PlatformAdmin]).is_ok());
    let refused =
        check_set(ttl, wanted(PolicyScope::Org, &json!(20_000)), &[], &[Role::OrgOwner]).unwrap_err();
    assert_eq!(refused.code, Code::Unprocessable);
    let raised = stored(&[Some(json!(30_000))]);
    assert!(check_set(ttl, wanted(PolicyScope::Org, &json!(20_000)), &raised, &[Role::OrgOwner]).is_ok());
}

#[test]
fn nobody_lifts_what_limits_them() {
    let may = |definition, scope, role| check_authority(definition, scope, &[role]).map_err(|p| p.code);
    let quota = keys::QUOTA_GPUS_PER_ORG.definition();
    assert_eq!(may(quota, PolicyScope::Org, Role::OrgOwner), Err(Code::AdminRequired));
    assert_eq!(may(quota, PolicyScope::Org, Role::PlatformAdmin), Ok(()));
    let quota = keys::QUOTA_GPUS_PER_PROJECT.definition();
    assert_eq!(may(quota, PolicyScope::Project, Role::ProjectOwner), Err(Code::InsufficientPermissions));
    assert_eq!(may(quota, PolicyScope::Project, Role::OrgAdmin), Ok(()));
    assert_eq!(
        may(keys::ALLOCATION_REFUND_WINDOW_DAYS.definition(), PolicyScope::Org, Role::OrgOwner),
        Err(Code::AdminRequired)
    );
    // Asked for without an organization: a value there would lie about being in force.
    assert_eq!(
        may(keys::RATE_API.definition(), PolicyScope::Org, Role::PlatformAdmin),
        Err(Code::Unprocessable)
    );
    assert_eq!(may(keys::RATE_API.definition(), PolicyScope::Global, Role::PlatformAdmin), Ok(()));
    for key in
        ["billing.window_seconds", "identity.invitation_ttl_days", "rate_limit.api_requests_per_minute"]
    {
        assert!(!tenant_may_set(key), "{key}");
    }
}

#[test]
fn what_a_higher_authority_set_is_replaced_from_below_only_when_it_is_a_default() {
    let limit = keys::ALLOCATION_MAX_CONCURRENT_PER_USER.definition();
    let set_by_platform = |is_default| {
        vec![StoredValue {
            scope: PolicyScope::Org,
            value: json!(10),
            version: 1,
            set_by: PolicyAuthority::Platform,
            is_default,
        }]
    };
    let set = |scope, value: i64, stored: &[StoredValue], role| {
        check_set(limit, wanted(scope, &json!(value)), stored, &[role]).map_err(|problem| problem.code)
    };
    let bound = set_by_platform(false);
    assert_eq!(set(PolicyScope::Org, 50, &bound, Role::OrgOwner), Err(Code::AdminRequired), "lifted");
    assert_eq!(set(PolicyScope::Project, 20, &bound, Role::OrgOwner), Err(Code::Unprocessable));
    assert_eq!(set(PolicyScope::Project, 5, &bound, Role::OrgOwner), Ok(()), "stricter further down");
    assert_eq!(set(PolicyScope::Org, 50, &bound, Role::PlatformAdmin), Ok(()));
    assert_eq!(
        check_replace(limit, PolicyScope::Org, &bound, &[Role::OrgOwner]).map_err(|problem| problem.code),
        Err(Code::AdminRequired),
        "nor removed"
    );
    let default = set_by_platform(true);
    assert_eq!(set(PolicyScope::Org, 50, &default, Role::OrgOwner), Ok(()));
    assert_eq!(set(PolicyScope::Project, 20, &default, Role::OrgOwner), Ok(()), "a default is no bound");
    assert_eq!(
        set(PolicyScope::Project, 51, &default, Role::OrgOwner),
        Err(Code::Unprocessable),
        "50 is one"
    );
    let default = WantedValue { scope: PolicyScope::Global, value: &json!(7), is_default: true };
    assert!(check_set(limit, default, &[], &[Role::PlatformAdmin]).is_err());
}
