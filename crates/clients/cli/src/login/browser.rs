//! Authorization code with PKCE: the browser comes back to a listener on 127.0.0.1.

use std::{io::IsTerminal as _, time::Duration};

use sdk::oidc::{Authorization, Issuer, SignInError, TokenSet};
use tokio::net::TcpListener;

use super::callback;
use crate::{
    app::App,
    failure::{Result, local},
    output::note,
    process,
    session::{SCOPE, SignInConfig},
};

const TIME_LIMIT: Duration = Duration::from_secs(5 * 60);

pub async fn sign_in(app: &App, issuer: &Issuer, config: &SignInConfig, open: bool) -> Result<TokenSet> {
    let no_listener = || local("cannot listen for the browser's redirect (try --device)");
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(no_listener())?;
    let port = listener.local_addr().map_err(no_listener())?.port();
    let redirect_uri = format!("http://127.0.0.1:{port}{}", callback::PATH);
    let authorization = Authorization::begin(issuer, &config.client, SCOPE, &redirect_uri)?;
    note(&format!("Sign in at\n\n  {}\n", authorization.url()));
    if open && std::io::stderr().is_terminal() {
        process::open_browser(authorization.url().as_str());
    }
    note("Waiting for the browser …");
    let answer = tokio::time::timeout(TIME_LIMIT, callback::wait(&listener, &authorization)).await;
    let code = answer.map_err(|_| SignInError::TimedOut)??;
    Ok(authorization.exchange(&app.http, issuer, &code).await?)
}
