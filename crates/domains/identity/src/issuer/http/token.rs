//! `/auth/token` and `/auth/revoke`.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{StatusCode, header};

use super::cx::Cx;
use crate::issuer::{Issuer, failure::TokenError, grants::Asker, model::Refusal};

const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// (client_id, client_secret) from the form, or from the Authorization header.
fn client(cx: &Cx) -> Result<(String, Option<String>), Refusal> {
    let in_form = cx.form.get("client_id").map(str::to_owned);
    let Some(value) = cx.headers.get(header::AUTHORIZATION) else {
        let id = in_form.ok_or(Refusal::InvalidRequest("client_id is missing."))?;
        return Ok((id, cx.form.get("client_secret").map(str::to_owned)));
    };
    const BAD: Refusal = Refusal::InvalidClient("The Authorization header is malformed.");
    let text = value.to_str().map_err(|_| BAD)?;
    let (scheme, encoded) = text.split_once(' ').ok_or(BAD)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(BAD);
    }
    let decoded =
        BASE64_STANDARD.decode(encoded.trim()).ok().and_then(|b| String::from_utf8(b).ok()).ok_or(BAD)?;
    let (id, secret) = decoded.split_once(':').ok_or(BAD)?;
    // Both parts are form-encoded (RFC 6749 2.3.1).
    let part = |text: &str| {
        let pairs: Vec<(String, String)> =
            serde_urlencoded::from_str(&format!("v={text}")).map_err(|_| BAD)?;
        pairs.into_iter().next().map(|(_, v)| v).ok_or(BAD)
    };
    let (id, secret) = (part(id)?, part(secret)?);
    if in_form.is_some_and(|other| other != id) {
        return Err(Refusal::InvalidRequest("client_id differs between header and form."));
    }
    Ok((id, Some(secret)))
}

pub(super) async fn token(State(issuer): State<Issuer>, cx: Cx) -> Result<Response, TokenError> {
    let asker = Asker { client: &cx.client, origin: &cx.origin };
    let need =
        |name: &'static str, text: &'static str| cx.form.get(name).ok_or(Refusal::InvalidRequest(text));
    let grant_type = need("grant_type", "grant_type is missing.")?;
    let (client_id, client_secret) = client(&cx)?;
    if grant_type == "client_credentials" {
        let secret = client_secret.ok_or(Refusal::InvalidClient("client_secret is missing."))?;
        return Ok(Json(issuer.key_exchange(&client_id, &secret, asker).await?).into_response());
    }
    let for_people = ["authorization_code", "refresh_token", DEVICE_GRANT].contains(&grant_type);
    if !for_people || !issuer.0.config.people {
        return Err(Refusal::UnsupportedGrantType.into());
    }
    if issuer.client(&client_id).is_none() {
        return Err(Refusal::InvalidClient("The client is unknown.").into());
    }
    let tokens = match grant_type {
        "authorization_code" => {
            let code = need("code", "code is missing.")?;
            let redirect_uri = need("redirect_uri", "redirect_uri is missing.")?;
            let verifier = need("code_verifier", "code_verifier is missing.")?;
            issuer.code_exchange(code, &client_id, redirect_uri, verifier, asker).await?
        }
        "refresh_token" => {
            issuer.refresh(need("refresh_token", "refresh_token is missing.")?, &client_id, asker).await?
        }
        _ => {
            issuer.device_exchange(need("device_code", "device_code is missing.")?, &client_id, asker).await?
        }
    };
    Ok(Json(tokens).into_response())
}

pub(super) async fn revoke(State(issuer): State<Issuer>, cx: Cx) -> Result<Response, TokenError> {
    let token = cx.form.get("token").ok_or(Refusal::InvalidRequest("token is missing."))?;
    issuer.revoke(token, Asker { client: &cx.client, origin: &cx.origin }).await?;
    Ok(StatusCode::OK.into_response())
}
