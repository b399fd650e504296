//! The server as rmcp sees it: the handshake and the tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ErrorCode, ErrorData, Implementation,
    InitializeRequestParams, InitializeResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rootsfs::roots::{ListState, Trigger};

use super::host::{Change, Host};
use super::inline::{Call, Inline, input_required};
use super::schema;
use super::session::Session;
use super::tools::{self, Tool};
use crate::status::SessionInfo;

/// For a client that can name no roots when nobody else did.
const NO_AUTHORITY: &str = "rootsfs has no roots to show: this client does not declare the `roots` capability and no \
    --root was given. Start rootsfs as `rootsfs mcp --root DIR`, or use a client that declares roots.";

pub(super) struct Server<H> {
    pub(super) host: Arc<H>,
    pub(super) session: Arc<Session<H>>,
    pub(super) inline: Arc<Inline>,
    pub(super) timeout: Duration,
    /// `initialize` was refused for want of roots.
    pub(super) refused: Arc<AtomicBool>,
    /// The client of a protocol without sessions was noted.
    pub(super) noted: AtomicBool,
}

impl<H: Host> Server<H> {
    fn note(&self, client: Option<&Implementation>, protocol: &ProtocolVersion, capabilities: &ClientCapabilities) {
        self.host.set_session(Some(SessionInfo {
            id: format!("stdio-{}", std::process::id()),
            client: client.map(|client| format!("{} {}", client.name, client.version)).unwrap_or_default(),
            protocol: protocol.to_string(),
            roots_capability: declares_roots(capabilities),
            list_changed: announces(capabilities),
        }));
    }

    /// A call in a session: waits for a round that is on.
    async fn call_in_session(
        &self,
        tool: Tool,
        call: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        if tool == Tool::RefreshRoots {
            let (host, timeout) = (Arc::clone(&self.host), self.timeout);
            if let Err(error) = blocking(move || host.refresh(timeout)).await? {
                return Ok(tools::error(&format!("the root list could not be refreshed: {error}")));
            }
        } else {
            let capabilities = context.client_capabilities().unwrap_or_default();
            if declares_roots(&capabilities) && !announces(&capabilities) {
                self.session.look_again();
            }
            self.session.settled().await;
        }
        self.run(tool, call).await
    }

    /// A call without a session (2026-07-28): brings the list, or is sent back for it.
    async fn call_inline(
        &self,
        tool: Tool,
        call: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let capabilities = context.client_capabilities().unwrap_or_default();
        if !self.noted.swap(true, Ordering::Relaxed) {
            let protocol = context.protocol_version().unwrap_or_default();
            self.note(context.client_info().as_ref(), &protocol, &capabilities);
        }
        if !declares_roots(&capabilities) {
            if self.host.list_state() == ListState::Waiting {
                let code = ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY;
                let required = serde_json::json!({"requiredCapabilities": {"roots": {}}});
                return Err(ErrorData::new(code, NO_AUTHORITY, Some(required)));
            }
            return self.run(tool, call).await.map(Into::into);
        }
        let change = match self.inline.judge(&call, tool == Tool::RefreshRoots) {
            Call::Ask(number) => return Ok(input_required(number).into()),
            Call::Proceed => None,
            Call::List(list) => Some(Change::List(list, Trigger::ListChanged)),
            Call::Malformed(why) => {
                tracing::warn!("no root list: {why}");
                Some(Change::Unavailable(why))
            }
        };
        if let Some(change) = change {
            let host = Arc::clone(&self.host);
            if let Err(error) = blocking(move || host.apply(change)).await? {
                return Ok(tools::error(&format!("the root list could not be put in force: {error}")).into());
            }
        }
        self.run(tool, call).await.map(Into::into)
    }

    async fn run(&self, tool: Tool, call: CallToolRequestParams) -> Result<CallToolResult, ErrorData> {
        let host = Arc::clone(&self.host);
        blocking(move || tool.run(&*host, call.arguments)).await
    }
}

impl<H: Host> ServerHandler for Server<H> {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("rootsfs", env!("CARGO_PKG_VERSION")))
            .with_instructions(schema::instructions(&self.host.mountpoint()))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let result = self.negotiate_initialize(&request)?;
        let declared = declares_roots(&request.capabilities);
        if !declared && self.host.list_state() == ListState::Waiting {
            self.refused.store(true, Ordering::Relaxed);
            return Err(ErrorData::invalid_request(NO_AUTHORITY, None));
        }
        self.note(Some(&request.client_info), &result.protocol_version, &request.capabilities);
        context.peer.set_peer_info(request);
        if declared {
            self.session.connect(context.peer);
        } else {
            self.session.change(Change::Unsupported);
        }
        Ok(result)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(schema::tools(&self.host.mountpoint())))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = Tool::by_name(&request.name) else {
            let name = &request.name;
            return Err(ErrorData::invalid_params(
                format!("no tool {name:?}; known: view_status, refresh_roots, explain_access, boundary_log"),
                None,
            ));
        };
        if context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28) {
            self.call_inline(tool, request, &context).await
        } else {
            self.call_in_session(tool, request, &context).await.map(Into::into)
        }
    }
}

fn declares_roots(capabilities: &ClientCapabilities) -> bool {
    capabilities.roots.is_some()
}

fn announces(capabilities: &ClientCapabilities) -> bool {
    capabilities.roots.as_ref().and_then(|roots| roots.list_changed) == Some(true)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ErrorData> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ErrorData::internal_error(error.to_string(), None))
}
