//! The rooms of a domain crate and the allowed edges between them, as one table.
//!
//! A room is a folder (or file) right below `src/`. Every domain may have the common ones; the others are named with
//! their crate. A part is a folder that is large enough to have the common rooms inside (`issuer/`); its other files
//! are use cases, so they count as its `service`, and its `mod.rs` is its `root`, as `lib.rs` is the root of the crate.

/// `lib.rs`, or `mod.rs` of a part: what the crate or the part is as a whole. It puts the rooms together, so it may use
/// all of them; those that must not know it are the ones without `root` below.
pub const ROOT: &str = "root";

/// What one room may use besides itself. `domain` is empty when it holds for every domain.
struct Room {
    domain: &'static str,
    name: &'static str,
    may_use: &'static [&'static str],
}

const fn room(name: &'static str, may_use: &'static [&'static str]) -> Room {
    Room { domain: "", name, may_use }
}

const fn room_in(domain: &'static str, name: &'static str, may_use: &'static [&'static str]) -> Room {
    Room { domain, name, may_use }
}

const ROOMS: &[Room] = &[
    room("model", &[]),
    room("store", &["model"]),
    room("service", &["model", "store", ROOT]),
    room("http", &["model", "service", ROOT]),
    room("jobs", &["model", "service", ROOT]),
    room("api", &["model", "service", "jobs", ROOT]),
    // Use cases start workflows; what a workflow shares with them is its own, or in model and store.
    room_in("capacity", "workflow", &["model", "store", ROOT]),
    room_in("capacity", "service", &["workflow"]),
    room_in("fleet", "gateway", &["model", "service", "install", ROOT]),
    room_in("fleet", "install", &[ROOT]),
    room_in("terminal", "gateway", &["model", "service", "http", ROOT]),
    room_in("payments", "provider", &["model"]),
    room_in("payments", "service", &["provider"]),
    room_in("payments", "webhook", &["service", ROOT]),
    room_in("payments", "return_page", &["model", "service", ROOT]),
];

/// A part of a domain, and whose rooms it may use besides its own: other parts, or the `DOMAIN` around it.
struct Part {
    domain: &'static str,
    name: &'static str,
    may_use: &'static [&'static str],
}

/// The rooms right below `src/`, as opposed to those of a part.
pub const DOMAIN: &str = "";

const PARTS: &[Part] = &[
    Part { domain: "fleet", name: "authority", may_use: &[] },
    Part { domain: "fleet", name: DOMAIN, may_use: &["authority"] },
    Part { domain: "identity", name: "authn", may_use: &[DOMAIN] },
    Part { domain: "identity", name: "issuer", may_use: &["authn", DOMAIN] },
];

/// Where a module stands: `issuer/store/codes.rs` is in the `store` of the part `issuer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    pub part: &'a str,
    pub room: &'a str,
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.part == DOMAIN { f.write_str(self.room) } else { write!(f, "{}/{}", self.part, self.room) }
    }
}

fn is_room(domain: &str, name: &str) -> bool {
    ROOMS.iter().any(|room| room.name == name && (room.domain.is_empty() || room.domain == domain))
}

fn is_common(name: &str) -> bool {
    ROOMS.iter().any(|room| room.name == name && room.domain.is_empty())
}

fn is_part(domain: &str, name: &str) -> bool {
    name != DOMAIN && PARTS.iter().any(|part| part.domain == domain && part.name == name)
}

/// The place of a file by its path below `src/`; nothing when it is in no room that the table knows.
pub fn place_of_file<'a>(domain: &str, inside: &'a str) -> Option<Place<'a>> {
    let names: Vec<&str> = inside.split('/').map(|name| name.trim_end_matches(".rs")).collect();
    match names.as_slice() {
        ["lib" | "main"] => Some(Place { part: DOMAIN, room: ROOT }),
        [part, "mod"] if is_part(domain, part) => Some(Place { part, room: ROOT }),
        [part, room, ..] if is_part(domain, part) && is_common(room) => Some(Place { part, room }),
        [part, _] if is_part(domain, part) => Some(Place { part, room: "service" }),
        [room, ..] if is_room(domain, room) => Some(Place { part: DOMAIN, room }),
        _ => None,
    }
}

/// The place of what a path names, from the root of the crate on. What is in no room is an item of a root.
pub fn place_of_path<'a>(domain: &str, path: &[&'a str]) -> Place<'a> {
    match path {
        [part, room, ..] if is_part(domain, part) && is_common(room) => Place { part, room },
        [part, ..] if is_part(domain, part) => Place { part, room: ROOT },
        [room, ..] if is_room(domain, room) => Place { part: DOMAIN, room },
        _ => Place { part: DOMAIN, room: ROOT },
    }
}

/// What the room may use, by the table.
pub fn allowed(domain: &str, room: &str) -> Vec<&'static str> {
    let rules = ROOMS.iter().filter(|rule| rule.name == room);
    rules
        .filter(|rule| rule.domain.is_empty() || rule.domain == domain)
        .flat_map(|rule| rule.may_use)
        .copied()
        .collect()
}

/// Whether code at `from` may name what is at `to`.
pub fn may_use(domain: &str, from: Place<'_>, to: Place<'_>) -> bool {
    let rooms = from.room == to.room || from.room == ROOT || allowed(domain, from.room).contains(&to.room);
    // What a crate shows of itself may come from any of its parts.
    let shows = from.part == DOMAIN && matches!(from.room, ROOT | "api");
    let parts = from.part == to.part
        || shows
        || PARTS
            .iter()
            .any(|part| part.domain == domain && part.name == from.part && part.may_use.contains(&to.part));
    rooms && parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reaches(edges: &dyn Fn(&str) -> Vec<&'static str>, from: &str, path: &mut Vec<String>) -> bool {
        if path.iter().any(|seen| seen == from) {
            return true;
        }
        path.push(from.to_owned());
        let cyclic = edges(from).into_iter().any(|next| reaches(edges, next, path));
        path.pop();
        cyclic
    }

    #[test]
    fn rooms_and_parts_are_known_and_have_no_cycle() {
        for domain in ["identity", "fleet", "capacity", "billing", "payments", "notify"] {
            // Every room may be put together by the root, which is no layer of its own.
            let rooms = |room: &str| allowed(domain, room).into_iter().filter(|to| *to != ROOT).collect();
            for room in ROOMS.iter().filter(|room| room.domain.is_empty() || room.domain == domain) {
                assert!(!reaches(&rooms, room.name, &mut Vec::new()), "{domain}: {}", room.name);
                for target in rooms(room.name) {
                    assert!(is_room(domain, target), "{domain}: {target}");
                }
            }
            let parts = |name: &str| {
                let of = PARTS.iter().filter(|part| part.domain == domain && part.name == name);
                of.flat_map(|part| part.may_use).copied().collect()
            };
            for part in PARTS.iter().filter(|part| part.domain == domain) {
                assert!(!reaches(&parts, part.name, &mut Vec::new()), "{domain}: {}", part.name);
            }
        }
    }

    #[test]
    fn files_and_paths_are_placed_alike() {
        let file = |domain, path| place_of_file(domain, path).map(|place| place.to_string());
        assert_eq!(file("identity", "issuer/store/codes.rs").as_deref(), Some("issuer/store"));
        assert_eq!(file("identity", "issuer/accounts.rs").as_deref(), Some("issuer/service"));
        assert_eq!(file("identity", "issuer/mod.rs").as_deref(), Some("issuer/root"));
        assert_eq!(file("identity", "issuer/pages/home.rs"), None);
        assert_eq!(file("capacity", "workflow/tasks.rs").as_deref(), Some("workflow"));
        assert_eq!(file("billing", "workflow/tasks.rs"), None);
        assert_eq!(file("billing", "helpers.rs"), None);
        assert_eq!(place_of_path("identity", &["authn", "store", "find"]).to_string(), "authn/store");
        assert_eq!(place_of_path("identity", &["authn", "Authn"]).to_string(), "authn/root");
        assert_eq!(place_of_path("billing", &["Billing"]).to_string(), "root");
    }
}
