//! The MCP server of `rootsfs mcp`: the client's roots become the view, and the view explains itself as tools.
//!
//! ```text
//! stdin → tap (wire order) → rmcp → handler → tools
//!          │                          │
//!          └ events → refresher (decides) → session (timers, roots/list, publications in order) → publisher
//! ```
//!
//! With protocol 2025-11-25 and older the server asks `roots/list` itself, driven by [`refresher`]; with 2026-07-28
//! there is no session and no server request, and [`inline`] takes the list out of the tool calls. Elements of a list
//! are handed on as they came; the judge of the library refuses them one by one.

mod handler;
mod host;
mod inline;
mod raw;
mod refresher;
mod schema;
mod session;
mod tap;
mod tools;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::service::{RoleServer, ServerInitializeError, serve_server};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::{Transport, stdio_pipes};
use tokio::sync::watch;

use self::handler::Server;
use self::host::{Change, Host};
use self::inline::Inline;
use self::session::Session;
use self::tap::Tap;
use crate::service::Service;

/// After the client has closed its end: for replies that are still on their way, and for the last publication.
const LEAVE: Duration = Duration::from_secs(1);

/// How the MCP server behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct McpOptions {
    /// How long the client may take for its list (`--refresh-timeout`).
    pub(crate) refresh_timeout: Duration,
}

/// Why the MCP server ended other than by the client's leave.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The client cannot name roots and nobody else did (exit code 3). It was told so.
    #[error(
        "no roots to show: the client does not declare the roots capability and no --root was given; start it as \
         `rootsfs mcp --root DIR`, or use a client that declares roots"
    )]
    NoAuthority,
    /// The conversation broke off.
    #[error("the MCP conversation broke off: {0}")]
    Broken(String),
}

impl ServeError {
    /// The process's exit code, as the contract has it.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::NoAuthority => 3,
            Self::Broken(_) => 1,
        }
    }
}

/// Serves one client on stdin and stdout, until it closes its end. Dropping the future ends the session too; the caller
/// unmounts in either case, and must not wait for the runtime's blocking threads, because a read of standard input that
/// is no pipe cannot be cancelled.
///
/// # Errors
/// [`ServeError`].
pub(crate) async fn serve_stdio(service: Arc<Service>, options: McpOptions) -> Result<(), ServeError> {
    let (stdin, stdout) = stdio_pipes();
    serve(service, AsyncRwTransport::new(stdin, stdout), options).await
}

/// Ends the session when the conversation ends or is dropped.
struct Close<H: Host>(Arc<Session<H>>);

impl<H: Host> Drop for Close<H> {
    fn drop(&mut self) {
        self.0.close();
    }
}

async fn serve<H: Host, T>(host: Arc<H>, transport: T, options: McpOptions) -> Result<(), ServeError>
where
    T: Transport<RoleServer> + 'static,
{
    let session = Session::start(Arc::clone(&host), options.refresh_timeout);
    let close = Close(Arc::clone(&session));
    let inline = Arc::new(Inline::default());
    let refused = Arc::new(AtomicBool::new(false));
    let ended = watch::Sender::new(false);
    let mut end = ended.subscribe();
    let tap = Tap::new(transport, Arc::clone(&session), Arc::clone(&inline), ended);
    let server = Server {
        host: Arc::clone(&host),
        session,
        inline,
        timeout: options.refresh_timeout,
        refused: Arc::clone(&refused),
        noted: AtomicBool::new(false),
    };
    let running = match serve_server(server, tap).await {
        Ok(running) => running,
        Err(_) if refused.load(Ordering::Relaxed) => return Err(ServeError::NoAuthority),
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
        Err(error) => return Err(ServeError::Broken(error.to_string())),
    };
    let conversation = running.waiting();
    tokio::pin!(conversation);
    let left = tokio::select! {
        _ = &mut conversation => false,
        () = async { drop(end.wait_for(|ended| *ended).await) } => true,
    };
    drop(close);
    if left {
        // rmcp waits five seconds for calls in hand; a mount must not stay that long.
        let _ = tokio::time::timeout(LEAVE, conversation).await;
    }
    host.set_session(None);
    let gone = tokio::task::spawn_blocking(move || host.apply(Change::Gone));
    if let Ok(Ok(Err(error))) = tokio::time::timeout(LEAVE, gone).await {
        tracing::debug!("the client left: {error}");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
