//! What the roles hold.

use super::*;

#[test]
fn every_permission_is_held_by_some_role_and_fits_the_set() {
    assert!(Permission::ALL.len() <= 128);
    for permission in Permission::ALL {
        assert!(Role::ALL.iter().any(|r| r.permissions().holds(*permission)), "{permission:?}");
    }
}

/// How many permissions each role holds: a change of authority is a change of this table too.
#[test]
fn roles_hold_as_many_permissions_as_they_should_and_have_stable_names() {
    let held: Vec<(&str, usize)> =
        Role::ALL.iter().map(|role| (role.name(), role.permissions().iter().count())).collect();
    let expected = [
        ("person", 7),
        ("org_owner", 28),
        ("org_admin", 28),
        ("org_member", 4),
        ("org_viewer", 11),
        ("project_owner", 14),
        ("project_admin", 13),
        ("project_member", 8),
        ("project_viewer", 6),
        ("service_account", 5),
        ("service_account_reader", 8),
        ("service_account_launcher", 10),
        ("platform_admin", 43),
        ("platform_ops", 23),
        ("platform_auditor", 20),
    ];
    assert_eq!(held, expected);
}

#[test]
fn a_set_holds_what_it_was_made_of_and_grants_nothing_else() {
    let set = PermissionSet::from_list(&[Permission::SelfRead, Permission::MoneyManage]);
    for permission in Permission::ALL {
        let listed = [Permission::SelfRead, Permission::MoneyManage].contains(permission);
        assert_eq!(set.holds(*permission), listed, "{permission:?}");
        assert_eq!(set.authorize(*permission).map(Granted::permission), listed.then_some(*permission));
    }
    assert_eq!(set.reads_only(), PermissionSet::from_list(&[Permission::SelfRead]));
    let more = PermissionSet::from_list(&[Permission::SelfRead, Permission::OrgRead]);
    assert_eq!(set.union(more).iter().count(), 3, "what both hold is held once");
    assert_eq!(format!("{set:?}"), r#"{"self.read", "money.manage"}"#);
}

#[test]
fn the_page_has_a_row_for_each_permission_and_a_column_for_each_role() {
    let page = matrix_markdown();
    assert!(page.contains("| permission | person | org_owner |"));
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows.len(), Permission::ALL.len());
    assert_eq!(rows[0], format!("| `self.read` | yes |{}", " |".repeat(Role::ALL.len() - 1)));
}

#[test]
fn a_service_account_can_change_no_membership_and_no_policy() {
    for role in [Role::ServiceAccount, Role::ServiceAccountReader] {
        let set = role.permissions();
        assert_eq!(set, set.reads_only(), "{role:?}");
    }
    let launcher = Role::ServiceAccountLauncher.permissions();
    let changes: Vec<_> = launcher.iter().filter(|permission| !permission.is_read()).collect();
    assert_eq!(changes, [P::AllocationCreate, P::AllocationOperate]);
}

#[test]
fn an_auditor_only_reads() {
    let set = Role::PlatformAuditor.permissions();
    assert_eq!(set, set.reads_only());
}
