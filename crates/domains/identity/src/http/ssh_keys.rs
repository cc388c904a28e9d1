//! `/me/ssh-keys`: your SSH public keys.

use endpoint::{Created, Empty, Endpoint, In, Json, NoContent, ScopeKind, Write, delete, get, post};
use kernel::{Code, Failure, Page, PageQuery, Permission, ids::SshKeyId, policy::keys, text::Name};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Identity,
    model::ssh_key::SshKey,
    service::{
        policy_cache::Where,
        ssh_keys::{ssh_key_create, ssh_key_delete, ssh_key_get, ssh_key_list},
    },
};

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    vec![
        get("/api/v1/me/ssh-keys", "ssh_key_list", "List your SSH public keys")
            .in_scope(ScopeKind::Person)
            .needs(Permission::SelfRead)
            .handle(identity.clone(), list),
        post("/api/v1/me/ssh-keys", "ssh_key_create", "Store an SSH public key")
            .describe("One OpenSSH public key in one line, without options. Private keys are refused and never stored.")
            .in_scope(ScopeKind::Person)
            .errors(&[Code::AlreadyExists, Code::QuotaExceeded])
            .needs(Permission::SshKeyManage)
            .audited("ssh_key.create")
            .handle(identity.clone(), create),
        get("/api/v1/me/ssh-keys/{ssh_key_id}", "ssh_key_get", "Show one of your SSH public keys")
            .in_scope(ScopeKind::Person)
            .needs(Permission::SelfRead)
            .handle(identity.clone(), show),
        delete("/api/v1/me/ssh-keys/{ssh_key_id}", "ssh_key_delete", "Delete one of your SSH public keys")
            .in_scope(ScopeKind::Person)
            .needs(Permission::SshKeyManage)
            .audited("ssh_key.delete")
            .handle(identity.clone(), remove),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct SshKeyPath {
    ssh_key_id: SshKeyId,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SshKeyCreate {
    name: Name,
    /// For example the content of `~/.ssh/id_ed25519.pub`.
    #[schemars(length(min = 1, max = 16384))]
    public_key: String,
}

async fn list(
    _: Identity,
    mut tx: ReadTx,
    input: In<Empty, PageQuery, ()>,
) -> Result<Json<Page<SshKey>>, Failure> {
    Ok(Json(ssh_key_list(&mut tx, input.access.user()?, &input.query).await?))
}

async fn create(
    identity: Identity,
    mut tx: Write,
    input: In<Empty, Empty, Json<SshKeyCreate>>,
) -> Result<Created<SshKey>, Failure> {
    let (user, body) = (input.access.user()?, input.body.0);
    let place = Where { user: Some(user), ..Where::default() };
    let limit = identity.policies().setting_at(keys::SSH_KEYS_PER_USER, place).await?;
    Ok(Created(ssh_key_create(&mut tx, user, body.name, &body.public_key, limit).await?))
}

async fn show(
    _: Identity,
    mut tx: ReadTx,
    input: In<SshKeyPath, Empty, ()>,
) -> Result<Json<SshKey>, Failure> {
    Ok(Json(ssh_key_get(&mut tx, input.access.user()?, input.path.ssh_key_id).await?))
}

async fn remove(_: Identity, mut tx: Write, input: In<SshKeyPath, Empty, ()>) -> Result<NoContent, Failure> {
    ssh_key_delete(&mut tx, input.access.user()?, input.path.ssh_key_id).await?;
    Ok(NoContent)
}
