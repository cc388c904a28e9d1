//! What administrators do with local accounts.

use endpoint::{Created, Empty, Endpoint, In, Json, ScopeKind, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::LocalAccountId,
    secret::ShownOnce,
    text::{Email, Name},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Issuer, accounts::NewAccount, model::Account};

#[derive(Deserialize, JsonSchema)]
struct AccountPath {
    account_id: LocalAccountId,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AccountCreate {
    email: Email,
    /// Made from the address when it is not given.
    name: Option<Name>,
}

/// An account with a password that is shown only now and must be changed at the first sign-in.
#[derive(Serialize, JsonSchema)]
struct AccountWithPassword {
    account: Account,
    one_time_password: ShownOnce,
}

#[derive(Serialize, JsonSchema)]
struct PasswordReset {
    one_time_password: ShownOnce,
}

/// Endpoints under `/api/v1/platform/accounts`.
pub fn endpoints(issuer: &Issuer) -> Vec<Endpoint> {
    vec![
        get("/api/v1/platform/accounts", "platform_account_list", "List local accounts")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformUserManage)
            .handle(issuer.clone(), list),
        post("/api/v1/platform/accounts", "platform_account_create", "Create a local account")
            .describe(
                "The response contains a one-time password, which must be changed at the first sign-in.",
            )
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformUserManage)
            .audited("platform.account.create")
            .errors(&[Code::AlreadyExists])
            .handle(issuer.clone(), create),
        post(
            "/api/v1/platform/accounts/{account_id}/reset-password",
            "platform_account_reset_password",
            "Reset the password of a local account",
        )
        .describe("Unlocks the account and revokes its sessions.")
        .in_scope(ScopeKind::Platform)
        .needs(Permission::PlatformUserManage)
        .audited("platform.account.reset_password")
        .errors(&[Code::NotFound])
        .handle(issuer.clone(), reset_password),
        post(
            "/api/v1/platform/accounts/{account_id}/disable",
            "platform_account_disable",
            "Disable a local account",
        )
        .describe(
            "The account cannot sign in, and its sessions are revoked. Refused for the only platform \
             administrator.",
        )
        .in_scope(ScopeKind::Platform)
        .needs(Permission::PlatformUserManage)
        .audited("platform.account.disable")
        .errors(&[Code::NotFound, Code::InUse])
        .handle(issuer.clone(), disable),
        post(
            "/api/v1/platform/accounts/{account_id}/enable",
            "platform_account_enable",
            "Enable a disabled local account",
        )
        .in_scope(ScopeKind::Platform)
        .needs(Permission::PlatformUserManage)
        .audited("platform.account.enable")
        .errors(&[Code::NotFound])
        .handle(issuer.clone(), enable),
    ]
}

async fn list(
    issuer: Issuer,
    mut read: ReadTx,
    input: In<Empty, PageQuery, ()>,
) -> Result<Json<Page<Account>>, Failure> {
    let accounts = issuer.account_list(read.conn(), &input.query).await?;
    Ok(Json(input.query.page(accounts, |account| account.id.uuid())))
}

async fn create(
    issuer: Issuer,
    mut tx: Write,
    input: In<Empty, Empty, Json<AccountCreate>>,
) -> Result<Created<AccountWithPassword>, Failure> {
    let AccountCreate { email, name } = input.body.0;
    let (account, password) = issuer.create_account(&mut tx, &NewAccount { email, name }).await?;
    Ok(Created(AccountWithPassword { account, one_time_password: ShownOnce::new(password) }))
}

async fn reset_password(
    issuer: Issuer,
    mut tx: Write,
    input: In<AccountPath, Empty, ()>,
) -> Result<Json<PasswordReset>, Failure> {
    let password = issuer.reset_password(&mut tx, input.path.account_id).await?;
    Ok(Json(PasswordReset { one_time_password: ShownOnce::new(password) }))
}

async fn disable(
    issuer: Issuer,
    mut tx: Write,
    input: In<AccountPath, Empty, ()>,
) -> Result<Json<Account>, Failure> {
    Ok(Json(issuer.set_account_disabled(&mut tx, input.path.account_id, true).await?))
}

async fn enable(
    issuer: Issuer,
    mut tx: Write,
    input: In<AccountPath, Empty, ()>,
) -> Result<Json<Account>, Failure> {
    Ok(Json(issuer.set_account_disabled(&mut tx, input.path.account_id, false).await?))
}
