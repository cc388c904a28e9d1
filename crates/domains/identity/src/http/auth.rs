//! Show the sign-in configuration: what a client must know before it has a token.

use endpoint::{Empty, Endpoint, In, Json, get};
use kernel::Failure;

use crate::{AuthInfo, Identity};

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    vec![
        get("/api/v1/auth/config", "auth_config_get", "Show the sign-in configuration")
            .describe(
                "The issuer, the client id of the command line, and the audience that tokens must have.",
            )
            .public(identity.clone(), config),
    ]
}

async fn config(identity: Identity, _: In<Empty, Empty, ()>) -> Result<Json<AuthInfo>, Failure> {
    Ok(Json(identity.auth().clone()))
}
