//! Whose list is in force: pure arbitration between the command line, the control socket and the client.

use super::{Authority, AuthorityPolicy, ListState, RootInput};

/// What happens to the list in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEvent {
    /// A list that counts was given, by whomever; an empty one is a list.
    Given,
    /// The client will give no list, and another one is in force.
    FellBack,
    /// The client will give no list, and there is no other.
    NoneLeft,
    /// The client announced a change.
    Announced,
    /// The client's list could not be had.
    Failed,
}

impl ListState {
    /// Where `event` leads.
    ///
    /// | from \ event | given, fell back | none left | announced | failed |
    /// | --- | --- | --- | --- | --- |
    /// | waiting | active | waiting | waiting | unavailable |
    /// | active | active | waiting | stale | unavailable |
    /// | stale | active | waiting | stale | unavailable |
    /// | unavailable | active | waiting | unavailable | unavailable |
    #[must_use]
    pub const fn after(self, event: ListEvent) -> Self {
        match (self, event) {
            (_, ListEvent::Given | ListEvent::FellBack) => Self::Active,
            (_, ListEvent::NoneLeft) => Self::Waiting,
            (_, ListEvent::Failed) => Self::Unavailable,
            (Self::Active | Self::Stale, ListEvent::Announced) => Self::Stale,
            (Self::Waiting | Self::Unavailable, ListEvent::Announced) => self,
        }
    }
}

/// What is known of the client's list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Client {
    /// No client, one that does no roots, or one that has not answered yet.
    Silent,
    /// Its list.
    Gave(Vec<RootInput>),
    /// Its list could not be had.
    Failed,
}

/// The lists of one view and the rule between them (`--authority`).
///
/// | policy | in force |
/// | --- | --- |
/// | `client` | what was given last by the client or the control socket, else `--root` |
/// | `command-line` | what the control socket made of `--root`, else `--root` |
/// | `union` | the same, and the client's list added |
#[derive(Clone, Debug)]
pub struct Lists {
    policy: AuthorityPolicy,
    command_line: Vec<RootInput>,
    control: Option<Vec<RootInput>>,
    client: Client,
    state: ListState,
}

impl Lists {
    /// The lists at the start. With `expects_client`, an empty `command_line` is no list: the view waits.
    #[must_use]
    pub fn new(policy: AuthorityPolicy, command_line: Vec<RootInput>, expects_client: bool) -> Self {
        let waits = expects_client && command_line.is_empty() && policy != AuthorityPolicy::CommandLine;
        let state = if waits { ListState::Waiting } else { ListState::Active };
        Self { policy, command_line, control: None, client: Client::Silent, state }
    }

    /// The state of the list in force.
    #[must_use]
    pub const fn state(&self) -> ListState {
        self.state
    }

    /// Whether a list from a client would count.
    #[must_use]
    pub fn wants_client(&self) -> bool {
        self.policy != AuthorityPolicy::CommandLine
    }

    /// The list in force, and who supplied it.
    #[must_use]
    pub fn effective(&self) -> (Authority, Vec<RootInput>) {
        let operator = if self.control.is_some() { Authority::Control } else { Authority::CommandLine };
        match (&self.client, self.policy) {
            (Client::Silent, _) | (_, AuthorityPolicy::CommandLine) => (operator, self.operators().to_vec()),
            (Client::Gave(list), AuthorityPolicy::Union) => {
                let authority = if self.control.is_some() { Authority::Control } else { Authority::Client };
                (authority, [self.operators(), list].concat())
            }
            (Client::Failed, AuthorityPolicy::Union) => (operator, self.operators().to_vec()),
            (client, AuthorityPolicy::Client) => match (&self.control, client) {
                (Some(control), _) => (Authority::Control, control.clone()),
                (None, Client::Gave(list)) => (Authority::Client, list.clone()),
                (None, _) => (Authority::Client, Vec::new()),
            },
        }
    }

    /// How many elements of the [effective](Self::effective) list are the operator's whatever the client says. They stand
    /// first.
    #[must_use]
    pub fn operators_part(&self) -> usize {
        match self.policy {
            AuthorityPolicy::Client => 0,
            AuthorityPolicy::CommandLine | AuthorityPolicy::Union => self.operators().len(),
        }
    }

    /// The client gave a list. Says whether it counts.
    pub fn set_client(&mut self, list: Vec<RootInput>) -> bool {
        if self.wants_client() {
            if self.policy == AuthorityPolicy::Client {
                self.control = None;
            }
            self.client = Client::Gave(list);
            self.happened(ListEvent::Given);
        }
        self.wants_client()
    }

    /// The client has gone, or does no roots: back to the operator's list.
    pub fn client_gone(&mut self) {
        self.client = Client::Silent;
        let none = self.operators().is_empty() && self.control.is_none() && self.wants_client();
        self.happened(if none { ListEvent::NoneLeft } else { ListEvent::FellBack });
    }

    /// The client announced a change. Says whether the list in force is the client's to change.
    pub fn announce(&mut self) -> bool {
        if self.client_counts() {
            self.happened(ListEvent::Announced);
        }
        self.client_counts()
    }

    /// The client's list could not be had: its part goes. Says whether it had one in force.
    pub fn unavailable(&mut self) -> bool {
        if self.client_counts() {
            self.client = Client::Failed;
            self.happened(ListEvent::Failed);
        }
        self.client_counts()
    }

    /// The operator's own list was given anew (a list file that changed), and replaces what the control socket made of the
    /// old one. Under `client` a list from the client stays in force. Says whether this one is.
    pub fn set_command_line(&mut self, list: Vec<RootInput>) -> bool {
        self.command_line = list;
        self.control = None;
        if self.operator_counts() {
            self.happened(ListEvent::Given);
        }
        self.operator_counts()
    }

    /// The operator's own list could not be had: it goes. Says whether it was in force.
    pub fn command_line_failed(&mut self) -> bool {
        let counted = self.operator_counts();
        self.command_line.clear();
        self.control = None;
        if counted {
            self.happened(ListEvent::Failed);
        }
        counted
    }

    fn operator_counts(&self) -> bool {
        self.policy != AuthorityPolicy::Client || self.client == Client::Silent
    }

    /// `roots set`: this list and no other, until a client gives one that counts.
    pub fn control_set(&mut self, list: Vec<RootInput>) {
        self.client = Client::Silent;
        self.controlled(list);
    }

    /// `roots add`, to the list in force.
    pub fn control_add(&mut self, list: Vec<RootInput>) {
        let base = self.own_part();
        self.controlled([base, list].concat());
    }

    /// `roots remove`, from the list in force: what `keep` refuses goes.
    pub fn control_remove(&mut self, keep: impl Fn(&RootInput) -> bool) {
        let mut list = self.own_part();
        list.retain(&keep);
        if let (AuthorityPolicy::Union, Client::Gave(client)) = (self.policy, &mut self.client) {
            client.retain(&keep);
        }
        self.controlled(list);
    }

    /// What a verb of the control socket works on: all that is in force, but under `union` not the client's part, which the
    /// client's next list must be able to take away.
    fn own_part(&self) -> Vec<RootInput> {
        match self.policy {
            AuthorityPolicy::Union => self.operators().to_vec(),
            _ => self.effective().1,
        }
    }

    fn controlled(&mut self, list: Vec<RootInput>) {
        self.control = Some(list);
        self.happened(ListEvent::Given);
    }

    fn operators(&self) -> &[RootInput] {
        self.control.as_ref().unwrap_or(&self.command_line)
    }

    fn client_counts(&self) -> bool {
        match self.policy {
            AuthorityPolicy::Client => self.control.is_none(),
            AuthorityPolicy::CommandLine => false,
            AuthorityPolicy::Union => true,
        }
    }

    fn happened(&mut self, event: ListEvent) {
        self.state = self.state.after(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<RootInput> {
        names.iter().map(|n| RootInput { uri: (*n).into(), name: None, entry: None, path_allowed: true }).collect()
    }

    fn lists(policy: AuthorityPolicy) -> Lists {
        Lists::new(policy, list(&["/cmd"]), true)
    }

    #[track_caller]
    fn expect(lists: &Lists, state: ListState, authority: Authority, names: &[&str]) {
        assert_eq!((lists.state(), lists.effective()), (state, (authority, list(names))));
    }

    #[test]
    fn whole_table() {
        use ListEvent::{Announced, Failed, FellBack, Given, NoneLeft};
        use ListState::{Active, Stale, Unavailable, Waiting};
        let events = [Given, FellBack, NoneLeft, Announced, Failed];
        for (from, to) in [
            (Waiting, [Active, Active, Waiting, Waiting, Unavailable]),
            (Active, [Active, Active, Waiting, Stale, Unavailable]),
            (Stale, [Active, Active, Waiting, Stale, Unavailable]),
            (Unavailable, [Active, Active, Waiting, Unavailable, Unavailable]),
        ] {
            for (event, to) in events.into_iter().zip(to) {
                assert_eq!(from.after(event), to, "{from:?} {event:?}");
            }
        }
    }

    #[test]
    fn start() {
        for policy in [AuthorityPolicy::Client, AuthorityPolicy::CommandLine, AuthorityPolicy::Union] {
            expect(&lists(policy), ListState::Active, Authority::CommandLine, &["/cmd"]);
            let waits = policy != AuthorityPolicy::CommandLine;
            let state = if waits { ListState::Waiting } else { ListState::Active };
            expect(&Lists::new(policy, Vec::new(), true), state, Authority::CommandLine, &[]);
            expect(&Lists::new(policy, Vec::new(), false), ListState::Active, Authority::CommandLine, &[]);
        }
    }

    #[test]
    fn client_replaces_wholly() {
        let mut l = lists(AuthorityPolicy::Client);
        assert!(l.set_client(list(&["/c"])));
        expect(&l, ListState::Active, Authority::Client, &["/c"]);
        assert!(l.announce());
        expect(&l, ListState::Stale, Authority::Client, &["/c"]);
        assert!(l.unavailable());
        expect(&l, ListState::Unavailable, Authority::Client, &[]);
        l.announce();
        expect(&l, ListState::Unavailable, Authority::Client, &[]);
        l.set_client(Vec::new());
        expect(&l, ListState::Active, Authority::Client, &[]);
        l.client_gone();
        expect(&l, ListState::Active, Authority::CommandLine, &["/cmd"]);
        let mut l = Lists::new(AuthorityPolicy::Client, Vec::new(), true);
        l.set_client(list(&["/c"]));
        l.client_gone();
        expect(&l, ListState::Waiting, Authority::CommandLine, &[]);
    }

    #[test]
    fn first_list_fails() {
        let mut l = lists(AuthorityPolicy::Client);
        l.unavailable();
        expect(&l, ListState::Unavailable, Authority::Client, &[]);
    }

    #[test]
    fn control_until_the_client_speaks() {
        let mut l = lists(AuthorityPolicy::Client);
        l.set_client(list(&["/c", "/d"]));
        l.control_add(list(&["/x"]));
        expect(&l, ListState::Active, Authority::Control, &["/c", "/d", "/x"]);
        l.control_remove(|input| input.uri != "/c");
        expect(&l, ListState::Active, Authority::Control, &["/d", "/x"]);
        assert!(!l.announce() && !l.unavailable());
        expect(&l, ListState::Active, Authority::Control, &["/d", "/x"]);
        l.client_gone();
        expect(&l, ListState::Active, Authority::Control, &["/d", "/x"]);
        l.set_client(list(&["/e"]));
        expect(&l, ListState::Active, Authority::Client, &["/e"]);
        l.control_set(Vec::new());
        expect(&l, ListState::Active, Authority::Control, &[]);
    }

    #[test]
    fn command_line_ignores_the_client() {
        let mut l = lists(AuthorityPolicy::CommandLine);
        assert!(!l.set_client(list(&["/c"])) && !l.announce() && !l.unavailable());
        expect(&l, ListState::Active, Authority::CommandLine, &["/cmd"]);
        l.control_add(list(&["/x"]));
        assert!(!l.set_client(list(&["/c"])));
        expect(&l, ListState::Active, Authority::Control, &["/cmd", "/x"]);
    }

    #[test]
    fn union_adds_and_takes_only_its_part() {
        let mut l = lists(AuthorityPolicy::Union);
        l.set_client(list(&["/c", "/d"]));
        expect(&l, ListState::Active, Authority::Client, &["/cmd", "/c", "/d"]);
        l.control_add(list(&["/x"]));
        expect(&l, ListState::Active, Authority::Control, &["/cmd", "/x", "/c", "/d"]);
        l.control_remove(|input| input.uri != "/c" && input.uri != "/cmd");
        expect(&l, ListState::Active, Authority::Control, &["/x", "/d"]);
        l.announce();
        l.unavailable();
        expect(&l, ListState::Unavailable, Authority::Control, &["/x"]);
        l.set_client(list(&["/e"]));
        expect(&l, ListState::Active, Authority::Control, &["/x", "/e"]);
        l.control_set(list(&["/y"]));
        expect(&l, ListState::Active, Authority::Control, &["/y"]);
    }

    #[test]
    fn list_file_ends_the_wait() {
        let mut l = Lists::new(AuthorityPolicy::Client, Vec::new(), true);
        l.set_command_line(list(&["/cmd"]));
        expect(&l, ListState::Active, Authority::CommandLine, &["/cmd"]);
    }
}
