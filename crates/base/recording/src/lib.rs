//! Recordings of terminal sessions: how they are written, sealed, and verified without the installation.
//!
//! **What it is for.** A gateway writes what a session prints to object storage while it happens. Whoever has the
//! objects and the public key of the installation can prove later that nothing was changed, removed or moved, or is told
//! exactly where it was. The server and the CLI use the same code; nothing here does I/O or reads a clock.
//!
//! **Chunks.** A recording is a sequence of chunks (`chunk`). The first line of a chunk is a JSON [`Header`]: which
//! session, which index, the SHA-256 of the whole previous chunk (zeros for the first), and which bytes of the session's
//! output it covers. The rest are lines of an asciicast v2 file (`event`); [`cast`] cuts the header off, and all parts
//! in order are such a file.
//!
//! **Writing.** A [`Recorder`] is given output with its sequence (the offset of its first byte in all output of the
//! session) and gives chunks, which the caller stores in order. It keeps less than a chunk in memory. When the gateway
//! dies, another one reads the last stored chunk ([`Tail`]), goes on with [`Recorder::resume`], and asks the node for
//! output from `end_sequence` on: what the dead gateway had not stored is recorded then. Output that nobody can give any
//! more is a [`Gap`]: a marker in the asciicast, and in the header of every chunk from there on.
//!
//! **Text.** asciicast holds text. A character that is split over two outputs stays whole: its first bytes wait
//! (`utf8`) and are not counted as recorded until the rest came. Bytes that are not UTF-8 become U+FFFD, the same ones
//! wherever outputs, chunks and gateways are split.
//!
//! **Numbers.** A sequence comes from a node, which may be in the hands of a tenant. None is larger than [`SEQUENCE_MAX`]: a
//! gateway breaks a node off that says otherwise, a [`Recorder`] that is given more records nothing of it, and a chunk that says
//! more was written by no recorder.
//!
//! **Seal.** The end of a recording is a [`Seal`]: number of chunks, digest of the last one, gaps, and an Ed25519
//! signature. A recording without a seal (the gateway died, nobody resumed) may lack its last chunk, and the verifier
//! says so.
//!
//! **Closing.** The last event of a recording says that it is closed. Chunks are put where none is yet, so that of a slow
//! gateway and whoever seals in its place exactly one writes the last chunk, and nobody writes after it.
//!
//! **Replaying.** A [`DrawingFilter`] leaves of the output what draws: a recorded program may have printed sequences that make
//! the terminal of whoever watches answer, or write to its clipboard.
//!
//! **Verifying.** The [`Verifier`] takes chunks one after the other and answers with the first [`Fault`]. The digest of
//! a chunk is in the next chunk, and that of the last one in the seal; which of two chunks that do not fit was edited is
//! decided by the chunk after them, so the verifier is always one chunk behind.

mod chunk;
mod content;
mod drawing;
mod event;
mod fault;
mod json_text;
mod recorder;
mod seal;
mod utf8;
mod verifier;

pub use chunk::{CHUNK_BYTES_MAX, Chunk, GAPS_LISTED_MAX, Gap, Header, SEQUENCE_MAX, Tail, cast};
pub use drawing::DrawingFilter;
pub use event::Event;
pub use fault::Fault;
pub use recorder::{Finished, Limits, Recorder, Size};
pub use seal::{PublicKey, Seal, Statement};
pub use verifier::{Verified, Verifier};
