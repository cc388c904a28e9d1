//! Signing in: with a browser on this machine, or with a code entered on another one.

mod browser;
mod callback;

use sdk::oidc::{DeviceCode, Issuer};

use crate::{
    app::App,
    credentials::SignIn,
    failure::{Failure, Result},
    output::note,
    session::{SCOPE, SignInConfig, sign_in_config},
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Browser { open: bool },
    Device,
}

/// Signs in and stores the tokens.
pub async fn sign_in(app: &App, flow: Flow) -> Result {
    if app.no_input() {
        return Err(Failure::client("signing in needs an interactive terminal")
            .suggest("Set GPUAAS_TOKEN or GPUAAS_SERVICE_ACCOUNT_KEY for non-interactive use."));
    }
    let config = sign_in_config(&app.http, &app.server).await?;
    let issuer = Issuer::discover(&app.http, &config.issuer).await?;
    let tokens = match flow {
        Flow::Browser { open } => browser::sign_in(app, &issuer, &config, open).await?,
        Flow::Device => device(app, &issuer, &config).await?,
    };
    let sign_in = SignIn::new(&config.issuer, &config.client, tokens, app.ambient.now().timestamp());
    app.credentials().lock().await?.put(&app.server, sign_in)
}

async fn device(app: &App, issuer: &Issuer, config: &SignInConfig) -> Result<sdk::oidc::TokenSet> {
    let code = DeviceCode::request(&app.http, issuer, &config.client, SCOPE).await?;
    note(&format!("Open {} on any device and enter the code {}", code.verification_uri, code.user_code));
    if let Some(complete) = &code.verification_uri_complete {
        note(&format!("or open {complete}"));
    }
    note("Waiting for confirmation …");
    Ok(code.wait(&app.http, issuer, &config.client).await?)
}
