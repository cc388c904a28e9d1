//! Standard input and output of a program that ssh has started.

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::unix::pipe,
};

/// More than the proxy reads or writes at once, so that both programs can run.
#[cfg(target_os = "linux")]
const PIPE: usize = 256 * 1024;

/// Dropped, the other end reads its end, if it is a pipe.
pub type Output = Box<dyn AsyncWrite + Unpin + Send>;
pub type Input = Box<dyn AsyncRead + Unpin + Send>;

/// ssh gives pipes, which are read and written as they are. Anything else goes through a thread.
pub fn standard_input() -> Input {
    let piped = io::stdin().as_fd().try_clone_to_owned().and_then(|input| {
        enlarge(&input);
        pipe::Receiver::from_owned_fd(input)
    });
    piped.map_or_else(|_| Box::new(tokio::io::stdin()) as Input, |input| Box::new(input) as Input)
}

/// As [`standard_input`]. Nothing else of this program can print to a pipe any more.
pub fn standard_output() -> Output {
    let piped = io::stdout().as_fd().try_clone_to_owned().and_then(|output| {
        enlarge(&output);
        let output = pipe::Sender::from_owned_fd(output)?;
        // Or ssh would not see the end before this program ends.
        rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
        Ok(output)
    });
    piped.map_or_else(|_| Box::new(tokio::io::stdout()) as Output, |output| Box::new(output) as Output)
}

/// As far as the system allows it.
#[cfg(target_os = "linux")]
fn enlarge(pipe: &OwnedFd) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE);
}

#[cfg(not(target_os = "linux"))]
fn enlarge(_: &OwnedFd) {}
