//! The checkout page: plain, without scripts, and clear about being simulated.

use crate::state::{Object, number, text};

const STYLE: &str = "
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#16181d;--soft:#545b68;--line:#d5d9e0;--warn-bg:#fff1c9;--warn:#5c4200;--go:#0b5cad;--go-ink:#fff}
@media (prefers-color-scheme:dark){:root{--bg:#111318;--card:#1b1e25;--ink:#f1f3f7;--soft:#a9b1bf;--line:#3a404c;--warn-bg:#4a3800;--warn:#ffe6a3;--go:#7db8f5;--go-ink:#0a1420}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
main{max-width:26rem;margin:8vh auto;padding:1.5rem;background:var(--card);border:1px solid var(--line);border-radius:.75rem}
.note{margin:0 0 1.25rem;padding:.75rem 1rem;border-radius:.5rem;background:var(--warn-bg);color:var(--warn)}
h1{margin:0;font-size:1.125rem}.sum{margin:.25rem 0 1.25rem;font-size:2rem;font-weight:600}
.soft{color:var(--soft)}.bad{border-left:.25rem solid #c4314b;padding-left:.75rem}
button{width:100%;margin-top:.625rem;padding:.75rem;border:1px solid var(--line);border-radius:.5rem;background:transparent;color:inherit;font:inherit;cursor:pointer}
button.go{background:var(--go);border-color:var(--go);color:var(--go-ink);font-weight:600}
button:focus-visible,a:focus-visible{outline:3px solid var(--go);outline-offset:2px}a{color:var(--go)}";

const NOTE: &str = "<p class=\"note\" role=\"note\"><strong>SIMULATED.</strong> This is not a real payment provider. No card is asked for and no real money moves.</p>";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

fn whole(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title} (simulated)</title><style>{STYLE}</style></head><body><main>{NOTE}{body}</main></body></html>"
    )
}

/// Most currencies have hundredths; those of the list have none.
fn amount(session: &Object) -> String {
    const WHOLE: &[&str] = &["jpy", "krw", "vnd", "clp", "isk", "ugx", "xaf", "xof", "xpf", "pyg", "rwf"];
    let (minor, currency) = (number(session, "amount_total"), text(session, "currency"));
    let sum = if WHOLE.contains(&currency) {
        minor.to_string()
    } else {
        format!("{}.{:02}", minor / 100, minor % 100)
    };
    format!("{sum} {}", escape(&currency.to_uppercase()))
}

pub fn checkout(session: &Object, declined: bool) -> String {
    let items =
        session.get("sim_data").and_then(|data| data.get("items")).and_then(serde_json::Value::as_array);
    let names: Vec<String> =
        items.into_iter().flatten().filter_map(|item| item.as_str()).map(escape).collect();
    let refused = if declined {
        "<p class=\"bad\" role=\"alert\">Your card was declined. Try again, or go back.</p>"
    } else {
        ""
    };
    let cancel = if text(session, "cancel_url").is_empty() {
        ""
    } else {
        "<button name=\"do\" value=\"cancel\">Cancel and go back</button>"
    };
    // Each button has a form of its own, so that programs without a pointer can choose, too.
    let action = format!("/c/pay/{}", escape(text(session, "id")));
    let body = format!(
        "<h1>{}</h1><p class=\"sum\">{}</p>{refused}\
         <form method=\"post\" action=\"{action}/pay\"><button class=\"go\">Pay (simulated card 4242)</button></form>\
         <form method=\"post\" action=\"{action}/decline\"><button>Decline (simulated card 0002)</button></form>\
         <form method=\"post\" action=\"{action}/cancel\">{cancel}</form>\
         <p class=\"soft\">Checkout {}</p>",
        names.join(", "),
        amount(session),
        escape(text(session, "id")),
    );
    whole("Checkout", &body)
}

pub fn ended_session_page(session: &Object) -> String {
    let said = if text(session, "status") == "complete" {
        "This checkout has been paid."
    } else {
        "This checkout has expired."
    };
    let back = text(session, "cancel_url");
    let link = if back.is_empty() {
        String::new()
    } else {
        format!("<p><a href=\"{}\">Go back</a></p>", escape(back))
    };
    whole("Checkout", &format!("<h1>{said}</h1><p>Nothing more can be paid here.</p>{link}"))
}

pub fn unknown() -> String {
    whole("Checkout", "<h1>There is no such checkout.</h1><p>Start again from where you came.</p>")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state::object;

    #[test]
    fn the_page_says_that_it_is_simulated_and_escapes_what_others_named() {
        let session = object(json!({
            "id": "cs_test_1", "amount_total": 1205, "currency": "usd", "status": "open", "cancel_url": "http://h/x",
            "sim_data": { "items": ["<script>alert('x')</script>"] },
        }));
        let page = checkout(&session, false);
        assert!(page.contains("SIMULATED") && page.contains("12.05 USD"), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }
}
