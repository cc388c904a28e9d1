//! What has an id: how people call it, and where the server lists it.
//!
//! One table for three uses: `find` turns what somebody typed (a name, an e-mail address, the tail of an id) into an
//! id, `names` shows ids in tables by name, and `complete` offers values to the shell. A test compares the paths and
//! fields with the OpenAPI document.

pub mod complete;
mod fetch;
mod find;
pub mod kinds;
pub mod names;

pub use find::{find, pick};

/// A kind of resource that lists can be searched for.
#[derive(Debug)]
pub struct Kind {
    /// As in `there is no project`.
    pub noun: &'static str,
    /// Of its ids.
    pub prefix: &'static str,
    /// The path of its list, from `/api/v1`. What stands in braces is filled in.
    pub path: &'static str,
    /// Fields by which people call it.
    pub names: &'static [&'static str],
    /// The command that lists them.
    pub list: &'static str,
}

impl Kind {
    /// Text with the form of a whole id.
    pub fn is_id(&self, text: &str) -> bool {
        text.strip_prefix(self.prefix).is_some_and(|rest| {
            rest.len() == 32 && rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        })
    }
}

/// What stands in the braces of a path.
pub type Within<'a> = &'a [(&'a str, &'a str)];
