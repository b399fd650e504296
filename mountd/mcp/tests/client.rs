use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, split};
use tokio::task::JoinHandle;

use super::super::{McpOptions, ServeError, serve};
use super::fake::{Fake, Seen};

/// How long the server waits for a list in these tests.
const REFRESH_TIMEOUT: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: Option<WriteHalf<DuplexStream>>,
    host: Arc<Fake>,
    server: Option<JoinHandle<Result<(), ServeError>>>,
    next: u64,
    roots_requests: VecDeque<Value>,
    responses: Vec<Value>,
}

pub(super) fn initialize_params(capabilities: Value) -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}})
}

pub(super) fn inline_call(tool: &str, capabilities: Value, retry: Option<(&str, Value)>) -> Value {
    let mut params = json!({"name": tool, "arguments": {}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }});
    if let Some((state, answer)) = retry {
        params["requestState"] = json!(state);
        params["inputResponses"] = json!({"roots": answer});
    }
    params
}

impl Client {
    pub(super) fn start(command_line: bool) -> Self {
        let (near, far) = tokio::io::duplex(1 << 20);
        let host = Arc::new(Fake::new(command_line));
        let (reader, writer) = split(far);
        let transport = AsyncRwTransport::new(reader, writer);
        let server = tokio::spawn(serve(Arc::clone(&host), transport, McpOptions { refresh_timeout: REFRESH_TIMEOUT }));
        let (reader, writer) = split(near);
        Self {
            lines: BufReader::new(reader).lines(),
            writer: Some(writer),
            host,
            server: Some(server),
            next: 0,
            roots_requests: VecDeque::new(),
            responses: Vec::new(),
        }
    }

    async fn send(&mut self, message: Value) {
        let line = format!("{message}\n");
        self.writer.as_mut().unwrap().write_all(line.as_bytes()).await.unwrap();
    }

    /// Reads one message and files it.
    pub(super) async fn pump(&mut self) {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.unwrap().unwrap().unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        match message["method"].as_str() {
            Some("roots/list") => self.roots_requests.push_back(message["id"].clone()),
            Some(_) => {}
            None => self.responses.push(message),
        }
    }

    pub(super) async fn initialize(&mut self, capabilities: Value) {
        let answer = self.request("initialize", initialize_params(capabilities)).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        self.notify("notifications/initialized").await;
    }

    pub(super) async fn notify(&mut self, method: &str) {
        self.send(json!({"jsonrpc": "2.0", "method": method})).await;
    }

    async fn post(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        self.send(json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params})).await;
        self.next
    }

    pub(super) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.post(method, params).await;
        self.response(id).await
    }

    pub(super) async fn response(&mut self, id: u64) -> Value {
        loop {
            if let Some(place) = self.responses.iter().position(|response| response["id"] == id) {
                return self.responses.remove(place);
            }
            self.pump().await;
        }
    }

    pub(super) async fn send_call(&mut self, tool: &str, arguments: Value) -> u64 {
        self.post("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    pub(super) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.send_call(tool, arguments).await;
        self.response(id).await["result"].clone()
    }

    async fn roots_request(&mut self) -> Value {
        loop {
            if let Some(id) = self.roots_requests.pop_front() {
                return id;
            }
            self.pump().await;
        }
    }

    /// Answers the oldest open `roots/list`, waiting for one.
    pub(super) async fn answer_roots(&mut self, result: Value) {
        let id = self.roots_request().await;
        self.send(json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
    }

    pub(super) async fn answer_newest(&mut self, result: Value) {
        let id = self.roots_requests.pop_back().unwrap();
        self.send(json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
    }

    pub(super) async fn refuse_roots(&mut self, code: i64) {
        let id = self.roots_request().await;
        self.send(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}})).await;
    }

    /// `roots/list` requests that came and were not answered.
    pub(super) fn unanswered(&self) -> usize {
        self.roots_requests.len()
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.host.seen()
    }

    pub(super) async fn wait_seen(&self, wanted: &Seen) {
        let found = async {
            while !self.seen().contains(wanted) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{wanted:?} not in {:?}", self.seen()));
    }

    /// After a publication was seen: until the server has noticed its end.
    pub(super) async fn wait_settled(&self) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    /// Closes the client's end.
    pub(super) async fn leave(&mut self) -> Result<(), ServeError> {
        self.writer.take().unwrap().shutdown().await.unwrap();
        self.end().await
    }

    pub(super) async fn end(&mut self) -> Result<(), ServeError> {
        tokio::time::timeout(Duration::from_secs(3), self.server.take().unwrap()).await.unwrap().unwrap()
    }
}
