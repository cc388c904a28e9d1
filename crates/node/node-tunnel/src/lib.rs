//! Streams of bytes to and from a node that only dials out: terminals, SSH, logs on demand, routes of apps.
//!
//! **How it works.** The agent dials a gateway that asked for its node, over mutual TLS. Then the roles reverse: the
//! gateway is the HTTP/2 client ([`Tunnel`]) and opens streams; the agent is the server ([`serve`]) and answers them. A
//! stream is one `POST` whose request and response bodies are the two directions. It carries a grant, signed in the request of
//! the person who wants in; the agent's [`Gate`] verifies it as tasks are verified, so a gateway opens nothing by itself.
//!
//! **Flow control.** A receiver gives capacity back only after the bytes were written on ([`Receiver::consumed`]), so a
//! reader that stalls stalls the far sender, through every hop, and nothing is buffered beyond one window per stream. The
//! window of a connection is as large as all of its streams' together: a stalled stream never stalls another.
//!
//! **What it promises.** A tunnel whose peer is gone ends within two pings, and all of its streams with it, with an error
//! and not with an end of stream: half a transfer is never taken for all of it. A tunnel without streams ends by itself. What
//! does not prove a right gets a code and no bytes; a peer that opens more streams than allowed is refused, and others go on.

mod connection;
pub mod frame;
mod gate;
mod gateway;
mod node;
pub mod pieces;
mod read_ahead;
mod stream;

pub use connection::{Profile, TunnelError};
pub use gate::{Gate, Signers, StartedAt};
pub use gateway::{OpenError, Tunnel};
pub use node::{Attached, Handler, Refusal, serve};
pub use read_ahead::ReadAhead;
pub use stream::{Receiver, Sender, Stream, StreamError, receive_into, send_from};

/// What both sides offer in the TLS handshake, by what the tunnel is for.
pub const ALPN: &[u8] = b"gpuaas-tunnel/1";
pub const ALPN_BULK: &[u8] = b"gpuaas-tunnel-bulk/1";

/// The path of a new stream.
const STREAMS: &str = "/v1/streams";
/// Holds the grant: JSON in base64.
const GRANT_HEADER: &str = "grant";
/// Why a stream was not opened: a code.
const REASON_HEADER: &str = "reason";
/// The largest grant header; a larger one is not read.
const LARGEST_GRANT: usize = 8 * 1024;
