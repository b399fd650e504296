//! Listens in on the transport. rmcp starts a task for each message, so a handler cannot know whether a notice came
//! before a call; here they pass in the order of the wire.

use std::future::Future;
use std::sync::Arc;

use rmcp::model::{ClientNotification, JsonRpcMessage};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::watch;

use super::host::Host;
use super::inline::Inline;
use super::refresher::Event;
use super::session::Session;

pub(super) struct Tap<T, H> {
    transport: T,
    session: Arc<Session<H>>,
    inline: Arc<Inline>,
    /// Set when the client has closed its end.
    ended: watch::Sender<bool>,
    /// A request was seen. rmcp ends a session that begins with anything else; a stray notice must not.
    begun: bool,
}

impl<T, H> Tap<T, H> {
    pub(super) fn new(transport: T, session: Arc<Session<H>>, inline: Arc<Inline>, ended: watch::Sender<bool>) -> Self {
        Self { transport, session, inline, ended, begun: false }
    }
}

impl<T: Transport<RoleServer>, H: Host> Transport<RoleServer> for Tap<T, H> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.transport.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let Some(message) = self.transport.receive().await else {
                self.ended.send_replace(true);
                return None;
            };
            match &message {
                JsonRpcMessage::Request(_) => self.begun = true,
                JsonRpcMessage::Notification(notice) => match notice.notification {
                    ClientNotification::InitializedNotification(_) => self.session.event(Event::Initialized),
                    ClientNotification::RootsListChangedNotification(_) => {
                        self.inline.changed();
                        self.session.event(Event::Changed);
                    }
                    _ => {}
                },
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
            }
            if self.begun {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.transport.close().await
    }
}
