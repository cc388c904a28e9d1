//! What the public listener and the node listener share: bounded connections that cannot be held by a client which
//! does not read, does not ask, or does not let go.
//!
//! **Places** (`places`). So many connections altogether and so many of one network.
//!
//! **A connection** (`connection`) is served until it ends, and is cut when
//!
//! - its first bytes do not come in time (`socket`);
//! - the socket takes less than one piece of what is written within the stall limit (`socket`): a client that does
//!   not read, whatever it goes on sending;
//! - the peer does not take a piece of an answer within the stall limit (`body`): with HTTP/2 a peer can keep its
//!   flow-control window shut while the socket stays writable and pings are answered;
//! - it has no request under way within the idle limit. HTTP/2 is told to go away first, so that a request that
//!   crosses the notice is not lost; HTTP/1 has a shorter limit of its own for the next head.
//!
//! **A stop** tells every connection to finish. Answers without an end (server-sent events) end at once, an answer
//! that its client does not take is cut after [`DRAIN_STALL`], and what is left is cut when the listener says so.
//!
//! `traffic` is what a connection's parts note about it; only `connection` decides.

mod body;
mod connection;
mod places;
mod socket;
mod traffic;

pub use connection::{Connection, Limits};
pub use places::{Held, Place, Places, network};
pub use traffic::DRAIN_STALL;
