//! The style of every page. It stands in the page itself, and the policy of the page allows this text by its hash.

use std::sync::LazyLock;

use base64::{Engine as _, prelude::BASE64_STANDARD};

pub const STYLE: &str = "\
:root{color-scheme:light dark;--accent:#1f5fbf;--line:#8886;--fill:#8881;--error:#b3261e;--good:#1b7a3d;--wait:#9a6700}\
*{box-sizing:border-box}\
body{margin:0;min-height:100vh;display:grid;grid-template-columns:minmax(0,1fr);place-items:center;font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}\
main{width:min(25rem,100%);padding:1.5rem}\
main.wide{width:min(44rem,100%)}\
h1{font-size:1.5rem;line-height:1.25;margin:0 0 1rem}\
h2{font-size:1.05rem;margin:2rem 0 .5rem}\
.brand{font-weight:700;letter-spacing:.02em;margin:0 0 1.5rem}\
.brand a{color:inherit;text-decoration:none}\
a{color:LinkText}\
label{display:block;margin:.75rem 0 .25rem}\
input{width:100%;padding:.6rem;font:inherit;border:1px solid var(--line);border-radius:.4rem}\
button{width:100%;margin-top:1.25rem;padding:.65rem;font:inherit;font-weight:600;border:1px solid var(--accent);border-radius:.4rem;background:var(--accent);color:#fff;cursor:pointer}\
button.plain{background:none;color:inherit;border-color:var(--line);margin-top:.75rem}\
:focus-visible{outline:3px solid var(--accent);outline-offset:2px}\
.error,.good,.wait{border-left:4px solid var(--error);padding:.25rem .75rem}\
.good{border-color:var(--good)}\
.wait{border-color:var(--wait)}\
.code{font:600 1.5rem/1.2 ui-monospace,monospace;letter-spacing:.1em}\
.hint{opacity:.8;font-size:.9rem}\
ol{margin:0;padding:0 0 0 1.5rem}\
li{margin:0 0 .75rem}\
pre{margin:.35rem 0 0;padding:.5rem .75rem;border:1px solid var(--line);border-radius:.4rem;background:var(--fill);font:.875rem/1.5 ui-monospace,monospace;white-space:pre-wrap}\
dl{display:grid;grid-template-columns:minmax(6rem,auto) 1fr;gap:.35rem 1rem;margin:1rem 0}\
dt{opacity:.8}\
dd{margin:0;min-width:0}";

pub static STYLE_HASH: LazyLock<String> =
    LazyLock::new(|| BASE64_STANDARD.encode(kernel::digest::sha256(STYLE)));
