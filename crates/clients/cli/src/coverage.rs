//! Which command reaches which operation of the API. A new operation fails the tests until it is here.

/// Operation and the command that uses it.
const COVERED: &[(&str, &str)] = &[
    ("adjustment_approve", "platform billing adjustments approve"),
    ("adjustment_create", "platform billing adjustments create"),
    ("adjustment_get", "platform billing adjustments show"),
    ("adjustment_list", "platform billing adjustments list"),
    ("adjustment_reject", "platform billing adjustments reject"),
    ("agent_program_list", "agents list"),
    ("allocation_access_refresh", "allocations access refresh"),
    ("allocation_create", "allocations create"),
    ("allocation_events", "allocations events"),
    ("allocation_explain", "allocations explain"),
    ("allocation_get", "allocations show"),
    ("allocation_grant_create", "allocations grants create"),
    ("allocation_grant_delete", "allocations grants delete"),
    ("allocation_grant_list", "allocations grants list"),
    ("allocation_group_create", "groups create"),
    ("allocation_group_get", "groups show"),
    ("allocation_group_list", "groups list"),
    ("allocation_group_release", "groups release"),
    ("allocation_list", "allocations list"),
    ("allocation_release", "allocations release"),
    ("allocation_restart", "allocations restart"),
    ("allocation_retry", "allocations retry"),
    ("allocation_stream", "allocations show"),
    ("allocation_watch", "allocations watch"),
    ("audit_export", "audit export"),
    ("audit_list", "audit list"),
    ("audit_verify", "audit verify"),
    ("auth_config_get", "auth login"),
    ("authority_activate", "trust authorities activate"),
    ("authority_list", "trust authorities list"),
    ("authority_retire", "trust authorities retire"),
    ("authority_revoke", "trust authorities revoke"),
    ("authority_stage", "trust authorities stage"),
    ("billing_balance_get", "billing balance"),
    ("billing_finding_get", "platform billing findings show"),
    ("billing_finding_list", "platform billing findings list"),
    ("budget_delete", "billing budgets delete"),
    ("budget_get", "billing budgets show"),
    ("budget_list", "billing budgets list"),
    ("budget_set", "billing budgets set"),
    ("catalog_list", "catalog"),
    ("dead_letter_discard", "ops dlq discard"),
    ("dead_letter_get", "ops dlq show"),
    ("dead_letter_list", "ops dlq list"),
    ("dead_letter_requeue", "ops dlq requeue"),
    ("delivery_list", "platform deliveries list"),
    ("delivery_retry", "platform deliveries retry"),
    ("discrepancy_get", "ops discrepancies show"),
    ("discrepancy_list", "ops discrepancies list"),
    ("dispute_get", "billing disputes show"),
    ("dispute_list", "billing disputes list"),
    ("finding_acknowledge", "findings acknowledge"),
    ("finding_get", "findings show"),
    ("finding_list", "findings list"),
    ("finding_resolve", "findings resolve"),
    ("focus_export", "billing export"),
    ("health_rule_delete", "health rules delete"),
    ("health_rule_list", "health rules list"),
    ("health_rule_put", "health rules set"),
    ("invitation_accept", "invitations accept"),
    ("invitation_create", "invitations create"),
    ("invitation_decline", "invitations decline"),
    ("invitation_get", "invitations show"),
    ("invitation_list", "invitations list"),
    ("invitation_list_received", "invitations received"),
    ("invitation_revoke", "invitations revoke"),
    ("keyset_get", "trust keyset"),
    ("ledger_export", "ledger export"),
    ("ledger_get", "ledger show"),
    ("ledger_list", "ledger list"),
    ("ledger_verify", "ledger verify"),
    ("me_get", "auth whoami"),
    ("me_update", "auth update"),
    ("member_delete", "members delete"),
    ("member_get", "members show"),
    ("member_list", "members list"),
    ("member_policy_get", "policy explain"),
    ("member_policy_set", "policy set"),
    ("member_policy_unset", "policy unset"),
    ("member_update", "members update"),
    ("node_agent_update", "nodes agent-update"),
    ("node_bootstrap_token", "nodes bootstrap-token"),
    ("node_certificate_list", "nodes certificates"),
    ("node_certificate_revoke", "nodes revoke-certificates"),
    ("node_collect", "nodes collect"),
    ("node_cordon", "nodes cordon"),
    ("node_create", "nodes create"),
    ("node_discover", "nodes discover"),
    ("node_drain", "nodes drain"),
    ("node_get", "nodes show"),
    ("node_history", "nodes history"),
    ("node_list", "nodes list"),
    ("node_log_tail", "nodes logs"),
    ("node_log_token_create", "nodes logs"),
    ("node_quarantine", "nodes quarantine"),
    ("node_reboot", "nodes reboot"),
    ("node_release", "nodes release"),
    ("node_remove", "nodes delete"),
    ("node_repair_token", "nodes repair-token"),
    ("node_retire", "nodes retire"),
    ("node_slot_list", "nodes slots"),
    ("node_slots_approve", "nodes approve-slots"),
    ("node_topology", "nodes topology"),
    ("node_uncordon", "nodes uncordon"),
    ("node_undrain", "nodes undrain"),
    ("node_update", "nodes update"),
    ("node_validate", "nodes validate"),
    ("node_validation_list", "nodes validations"),
    ("notification_list", "notifications list"),
    ("notification_preferences_get", "notifications preferences show"),
    ("notification_preferences_update", "notifications preferences set"),
    ("notification_read", "notifications read"),
    ("notification_read_all", "notifications read"),
    ("notification_stream", "notifications list"),
    ("org_get", "orgs show"),
    ("org_list", "orgs list"),
    ("org_policy_get", "policy explain"),
    ("org_policy_list", "policy list"),
    ("org_policy_set", "policy set"),
    ("org_policy_unset", "policy unset"),
    ("org_update", "orgs update"),
    ("outbox_list", "ops outbox"),
    ("payment_get", "billing payments show"),
    ("payment_list", "billing payments list"),
    ("payment_reconcile", "platform billing reconciliations start"),
    ("payment_reconcile_list", "platform billing reconciliations list"),
    ("platform_account_create", "platform accounts create"),
    ("platform_account_disable", "platform accounts disable"),
    ("platform_account_enable", "platform accounts enable"),
    ("platform_account_list", "platform accounts list"),
    ("platform_account_reset_password", "platform accounts reset-password"),
    ("platform_allocation_force_cleanup", "platform allocations force-cleanup"),
    ("platform_allocation_force_release", "platform allocations force-release"),
    ("platform_allocation_get", "platform allocations show"),
    ("platform_allocation_list", "platform allocations list"),
    ("platform_audit_export", "audit export"),
    ("platform_audit_list", "audit list"),
    ("platform_audit_verify", "audit verify"),
    ("platform_dispute_get", "platform billing disputes show"),
    ("platform_dispute_list", "platform billing disputes list"),
    ("platform_ledger_totals", "platform billing totals"),
    ("platform_ledger_verify", "platform billing verify"),
    ("platform_org_create", "platform orgs create"),
    ("platform_org_list", "platform orgs list"),
    ("platform_org_resume", "platform orgs resume"),
    ("platform_org_suspend", "platform orgs suspend"),
    ("platform_payment_get", "platform billing payments show"),
    ("platform_payment_list", "platform billing payments list"),
    ("platform_policy_get", "policy get"),
    ("platform_policy_list", "policy list"),
    ("platform_policy_propose", "platform changes propose-policy"),
    ("platform_policy_set", "policy set"),
    ("platform_policy_unset", "policy unset"),
    ("platform_refund_get", "platform billing refunds show"),
    ("platform_refund_list", "platform billing refunds list"),
    ("platform_user_list", "platform users list"),
    ("platform_user_roles_propose", "platform changes propose-roles"),
    ("platform_user_roles_set", "platform users set-roles"),
    ("policy_definition_list", "policy definitions"),
    ("pool_create", "pools create"),
    ("pool_delete", "pools delete"),
    ("pool_get", "pools show"),
    ("pool_list", "pools list"),
    ("pool_update", "pools update"),
    ("project_create", "projects create"),
    ("project_delete", "projects delete"),
    ("project_get", "projects show"),
    ("project_list", "projects list"),
    ("project_member_list", "projects members list"),
    ("project_member_remove", "projects members delete"),
    ("project_member_set", "projects members set"),
    ("project_policy_get", "policy get"),
    ("project_policy_list", "policy list"),
    ("project_policy_set", "policy set"),
    ("project_policy_unset", "policy unset"),
    ("project_update", "projects update"),
    ("project_usage_record_list", "billing records"),
    ("project_usage_report", "billing usage"),
    ("refund_create", "platform billing refunds create"),
    ("refund_get", "billing refunds show"),
    ("refund_list", "billing refunds list"),
    ("refund_settle", "platform billing refunds settle"),
    ("region_create", "regions create"),
    ("region_delete", "regions delete"),
    ("region_get", "regions show"),
    ("region_list", "regions list"),
    ("region_update", "regions update"),
    ("restore_difference_list", "ops restore differences"),
    ("restore_difference_settle", "ops restore settle"),
    ("restore_resume", "ops restore resume"),
    ("restore_status_get", "ops restore status"),
    ("saga_cancel", "ops sagas cancel"),
    ("saga_get", "ops sagas show"),
    ("saga_list", "ops sagas list"),
    ("sensitive_change_approve", "platform changes approve"),
    ("sensitive_change_get", "platform changes show"),
    ("sensitive_change_list", "platform changes list"),
    ("sensitive_change_reject", "platform changes reject"),
    ("service_account_create", "service-accounts create"),
    ("service_account_delete", "service-accounts delete"),
    ("service_account_get", "service-accounts show"),
    ("service_account_key_create", "service-accounts keys create"),
    ("service_account_key_list", "service-accounts keys list"),
    ("service_account_key_revoke", "service-accounts keys revoke"),
    ("service_account_list", "service-accounts list"),
    ("service_account_update", "service-accounts update"),
    ("session_list", "auth sessions list"),
    ("session_revoke", "auth sessions revoke"),
    ("session_revoke_others", "auth sessions revoke-others"),
    ("signer_activate", "trust signers activate"),
    ("signer_list", "trust signers list"),
    ("signer_retire", "trust signers retire"),
    ("signer_revoke", "trust signers revoke"),
    ("signer_stage", "trust signers stage"),
    ("sku_create", "skus create"),
    ("sku_get", "skus show"),
    ("sku_list", "skus list"),
    ("sku_price_create", "skus prices set"),
    ("sku_price_list", "skus prices list"),
    ("sku_profile_create", "skus profiles create"),
    ("sku_profile_delete", "skus profiles delete"),
    ("sku_update", "skus update"),
    ("slot_cleanup_retry", "slots cleanup-retry"),
    ("slot_force_cleanup", "slots force-cleanup"),
    ("slot_get", "slots show"),
    ("slot_list", "slots list"),
    ("slot_quarantine", "slots quarantine"),
    ("slot_restore", "slots restore"),
    ("slot_withdraw", "slots withdraw"),
    ("spend_cap_delete", "service-accounts spend-cap delete"),
    ("spend_cap_get", "service-accounts spend-cap show"),
    ("spend_cap_set", "service-accounts spend-cap set"),
    ("ssh_key_create", "ssh-keys create"),
    ("ssh_key_delete", "ssh-keys delete"),
    ("ssh_key_get", "ssh-keys show"),
    ("ssh_key_list", "ssh-keys list"),
    ("ssh_token_create", "ssh"),
    ("statement_get", "billing statements show"),
    ("statement_html", "billing statements show"),
    ("statement_list", "billing statements list"),
    ("statement_pdf", "billing statements show"),
    ("task_cancel", "tasks cancel"),
    ("task_get", "tasks show"),
    ("task_list", "tasks list"),
    ("terminal_recording_chunk_list", "recordings download"),
    ("terminal_recording_get", "recordings show"),
    ("terminal_recording_list", "recordings list"),
    ("terminal_recording_view_create", "recordings replay"),
    ("terminal_session_delete", "allocations terminals delete"),
    ("terminal_session_list", "allocations terminals list"),
    ("terminal_token_create", "terminal"),
    ("topup_cancel", "billing topups cancel"),
    ("topup_create", "billing topup"),
    ("topup_get", "billing topups show"),
    ("topup_list", "billing topups list"),
    ("usage_export", "billing export"),
    ("usage_record_list", "billing records"),
    ("usage_report", "billing usage"),
    ("whoami_get", "auth whoami"),
    ("webhook_create", "webhooks create"),
    ("webhook_delete", "webhooks delete"),
    ("webhook_delivery_list", "webhooks deliveries"),
    ("webhook_event_list", "platform billing webhook-events list"),
    ("webhook_event_requeue", "platform billing webhook-events requeue"),
    ("webhook_get", "webhooks show"),
    ("webhook_list", "webhooks list"),
    ("webhook_listener_create", "webhooks listen"),
    ("webhook_listener_stream", "webhooks listen"),
    ("webhook_rotate_secret", "webhooks rotate-secret"),
    ("webhook_test", "webhooks test"),
    ("webhook_update", "webhooks update"),
];

/// Operations without a command of their own, and why; `gpuaas api` reaches them.
const EXCEPTIONS: &[(&str, &str)] = &[];

use std::{collections::BTreeSet, fs, path::Path};

use clap::{CommandFactory as _, Parser as _};
use serde_json::Value;

/// The operations of the committed document.
fn operations() -> BTreeSet<String> {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../openapi/public.json");
    let document: Value = serde_json::from_str(&fs::read_to_string(document).unwrap()).unwrap();
    let paths = document["paths"].as_object().unwrap().values();
    paths
        .flat_map(|item| item.as_object().unwrap().values())
        .filter_map(|operation| operation["operationId"].as_str().map(str::to_owned))
        .collect()
}

/// All source of the commands, in one text.
fn sources(directory: &Path, text: &mut String) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.file_name().is_some_and(|name| name != "coverage.rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_operation_of_the_api_has_a_command_or_a_stated_reason() {
    let operations = operations();
    assert!(!operations.is_empty());
    let listed: Vec<&str> = COVERED.iter().chain(EXCEPTIONS).map(|(operation, _)| *operation).collect();
    let unique: BTreeSet<String> = listed.iter().map(|operation| (*operation).to_owned()).collect();
    assert_eq!(unique.len(), listed.len(), "an operation is listed twice");
    let missing: Vec<_> = operations.difference(&unique).collect();
    assert!(missing.is_empty(), "no command uses {missing:?}: add one, and list it");
    let gone: Vec<_> = unique.difference(&operations).collect();
    assert!(gone.is_empty(), "the API has no {gone:?}");
}

#[test]
fn the_listed_commands_exist_and_the_listed_operations_are_called() {
    let mut text = String::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut text);
    for (operation, command) in COVERED {
        let mut place = &crate::args::Args::command();
        for word in command.split(' ') {
            place = place.find_subcommand(word).unwrap_or_else(|| panic!("there is no command {command:?}"));
        }
        assert!(text.contains(&format!(".{operation}(")), "nothing calls {operation}");
    }
}

#[test]
fn commands_that_the_documents_of_fleet_and_allocations_show_exist_as_shown() {
    for name in ["fleet.md", "allocations.md"] {
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs").join(name);
        let document = fs::read_to_string(document).unwrap();
        let shown: Vec<&str> = document.lines().filter(|line| line.starts_with("gpuaas ")).collect();
        assert!(!shown.is_empty(), "{name}");
        for line in shown {
            let command = line.split(" # ").next().unwrap();
            if let Err(error) = crate::args::Args::try_parse_from(crate::examples::lines::words(command)) {
                panic!("{name}: {line}: {error}");
            }
        }
    }
}
