//! The listener of the browser's redirect: reads one line of each request, responds, and returns when the
//! redirect of this sign-in has arrived. Requests that do not belong to this sign-in get a 404 and are ignored.

use std::time::Duration;

use sdk::oidc::{Authorization, SignInError};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::failure::{Failure, Result, local};

pub const PATH: &str = "/callback";
const LONGEST_REQUEST_BYTES: u64 = 16 * 1024;
const REQUEST_TIME_LIMIT: Duration = Duration::from_secs(5);

/// The code of the sign-in. The caller bounds the wait.
pub async fn wait(listener: &TcpListener, authorization: &Authorization) -> Result<String> {
    loop {
        let (mut stream, _) =
            listener.accept().await.map_err(local("the connection from the browser failed"))?;
        let query = tokio::time::timeout(REQUEST_TIME_LIMIT, query(&mut stream)).await.ok().flatten();
        let outcome = query.and_then(|query| authorization.code(&query));
        let (status, text) = match &outcome {
            Some(Ok(_)) => ("200 OK", "You are signed in. You can close this page."),
            Some(Err(_)) => ("200 OK", "You are not signed in. See the error in the terminal."),
            None => ("404 Not Found", "This request does not belong to the current sign-in."),
        };
        let answer = tokio::time::timeout(REQUEST_TIME_LIMIT, answer(&mut stream, status, text)).await;
        // Whether the page was seen does not change the outcome.
        let _ = answer;
        match outcome {
            Some(Ok(code)) => return Ok(code),
            Some(Err(error @ SignInError::Refused { .. })) => return Err(error.into()),
            Some(Err(error)) => return Err(Failure::from(error)),
            None => {}
        }
    }
}

/// The query of a GET of our path.
async fn query(stream: &mut TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream.take(LONGEST_REQUEST_BYTES));
    let mut request = String::new();
    reader.read_line(&mut request).await.ok()?;
    // The rest is read too, so that closing does not reset the connection before the answer is read.
    let mut line = String::new();
    while reader.read_line(&mut line).await.ok()? > 2 {
        line.clear();
    }
    let mut parts = request.split_whitespace();
    let (Some("GET"), Some(target)) = (parts.next(), parts.next()) else { return None };
    let (path, query) = target.split_once('?')?;
    (path == PATH).then(|| query.to_owned())
}

async fn answer(stream: &mut TcpStream, status: &str, text: &str) -> std::io::Result<()> {
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta name=\"viewport\" content=\"width=device-width\"><title>gpuaas</title>\
         <style>:root{{color-scheme:light dark}}body{{font:1.1rem/1.5 system-ui,sans-serif;max-width:22rem;margin:15vh auto;\
         padding:0 1.5rem}}</style><b>GPUaaS</b><h1>{text}</h1></html>\n"
    );
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n",
        page.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(page.as_bytes()).await?;
    stream.shutdown().await
}
