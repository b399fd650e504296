//! The MCP server.

use std::sync::Arc;
use std::time::Duration;

use crate::service::Service;

pub(crate) struct McpOptions {
    pub(crate) refresh_timeout: Duration,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("not built yet")]
    NoAuthority,
}

pub(crate) async fn serve_stdio(_: Arc<Service>, options: McpOptions) -> Result<(), ServeError> {
    let _ = options.refresh_timeout;
    Err(ServeError::NoAuthority)
}

impl ServeError {
    pub(crate) fn exit_code(&self) -> u8 {
        3
    }
}
