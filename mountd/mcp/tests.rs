//! A client written by hand talks over a pipe, so that it can say what no library would.

mod client;
mod fake;

use std::time::Duration;

use rootsfs::roots::Trigger;
use serde_json::{Value, json};

use self::client::Client;
use self::fake::Seen;

fn list(uris: &[&str]) -> Value {
    json!({"roots": uris.iter().map(|uri| json!({"uri": uri})).collect::<Vec<_>>()})
}

fn seen_list(uris: &[&str], trigger: Trigger) -> Seen {
    Seen::List(uris.iter().map(|uri| (*uri).to_owned()).collect(), trigger)
}

#[tokio::test]
async fn the_first_list_and_a_changed_one() {
    let mut client = Client::start(false);
    client.initialize(json!({"roots": {"listChanged": true}})).await;
    client.answer_roots(list(&["file:///a", "file:///b"])).await;
    client.wait_seen(&seen_list(&["file:///a", "file:///b"], Trigger::Initialized)).await;
    client.notify("notifications/roots/list_changed").await;
    client.answer_roots(list(&["file:///b"])).await;
    client.wait_seen(&seen_list(&["file:///b"], Trigger::ListChanged)).await;
    assert_eq!(client.seen()[1], Seen::Announce);
    client.leave().await.unwrap();
    assert_eq!(client.seen().last(), Some(&Seen::Gone));
}

#[tokio::test]
async fn one_bad_element_does_not_spoil_the_list() {
    let mut client = Client::start(false);
    client.initialize(json!({"roots": {}})).await;
    client.answer_roots(json!({"roots": [{"uri": "file:///a"}, {"uri": 5}, "x"]})).await;
    client.wait_seen(&seen_list(&["file:///a", r#"{"uri":5}"#, r#""x""#], Trigger::Initialized)).await;
}

#[tokio::test]
async fn an_empty_list_is_a_list() {
    let mut client = Client::start(true);
    client.initialize(json!({"roots": {}})).await;
    client.answer_roots(list(&[])).await;
    client.wait_seen(&seen_list(&[], Trigger::Initialized)).await;
}

#[tokio::test]
async fn no_capability_and_no_roots_is_refused() {
    let mut client = Client::start(false);
    let answer = client.request("initialize", client::initialize_params(json!({}))).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("--root"), "{message}");
    assert!(matches!(client.end().await, Err(super::ServeError::NoAuthority)));
}

#[tokio::test]
async fn a_client_without_the_capability_is_never_asked() {
    let mut client = Client::start(true);
    client.initialize(json!({})).await;
    client.notify("notifications/roots/list_changed").await;
    client.wait_seen(&Seen::Unsupported).await;
    let status = client.call("view_status", json!({})).await;
    assert_eq!(status["structuredContent"]["state"], "active");
    assert_eq!(client.unanswered(), 0);
}

#[tokio::test]
async fn not_supported_leaves_the_command_line_in_force_after_one_retry() {
    let mut client = Client::start(true);
    client.initialize(json!({"roots": {}})).await;
    for _ in 0..2 {
        client.refuse_roots(-32601).await;
    }
    client.wait_seen(&Seen::Unsupported).await;
    assert_eq!(client.seen(), [Seen::Unsupported]);
}

#[tokio::test]
async fn silence_makes_the_list_unavailable_and_tools_are_listed_meanwhile() {
    let mut client = Client::start(true);
    client.initialize(json!({"roots": {}})).await;
    let tools = client.request("tools/list", json!({})).await;
    let names: Vec<_> = tools["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["view_status", "refresh_roots", "explain_access", "boundary_log"]);
    assert!(tools["result"]["tools"].as_array().unwrap().iter().all(|tool| tool["outputSchema"]["type"] == "object"));
    client.wait_seen(&Seen::Unavailable).await;
    // The background asks by itself, and an answer brings the view back.
    while client.unanswered() < 3 {
        client.pump().await;
    }
    client.answer_newest(list(&["file:///a"])).await;
    client.wait_seen(&seen_list(&["file:///a"], Trigger::Refresh)).await;
}

#[tokio::test]
async fn a_list_that_is_malformed_as_a_whole_is_asked_for_again() {
    let mut client = Client::start(false);
    client.initialize(json!({"roots": {}})).await;
    client.answer_roots(json!({"roots": "all"})).await;
    client.answer_roots(list(&["file:///a"])).await;
    client.wait_seen(&seen_list(&["file:///a"], Trigger::Initialized)).await;
}

#[tokio::test]
async fn a_call_right_after_a_notice_sees_the_new_list() {
    let mut client = Client::start(false);
    client.initialize(json!({"roots": {"listChanged": true}})).await;
    client.answer_roots(list(&["file:///a"])).await;
    client.wait_seen(&seen_list(&["file:///a"], Trigger::Initialized)).await;
    client.call("view_status", json!({})).await;
    client.notify("notifications/roots/list_changed").await;
    let call = client.send_call("view_status", json!({})).await;
    client.answer_roots(list(&["file:///a", "file:///b"])).await;
    let status = client.response(call).await;
    assert_eq!(status["result"]["structuredContent"]["generation"], 2);
}

#[tokio::test]
async fn a_burst_of_notices_costs_few_requests_one_at_a_time() {
    let mut client = Client::start(false);
    client.initialize(json!({"roots": {"listChanged": true}})).await;
    client.answer_roots(list(&["file:///0"])).await;
    client.wait_seen(&seen_list(&["file:///0"], Trigger::Initialized)).await;
    for _ in 0..300 {
        client.notify("notifications/roots/list_changed").await;
    }
    let mut answered = 0;
    while let Ok(()) = tokio::time::timeout(Duration::from_millis(700), client.answer_roots(list(&["file:///1"]))).await
    {
        answered += 1;
        assert_eq!(client.unanswered(), 0);
    }
    assert!((1..=40).contains(&answered), "{answered}");
    assert_eq!(client.seen().last(), Some(&seen_list(&["file:///1"], Trigger::ListChanged)));
}

#[tokio::test]
async fn refresh_reaches_the_client() {
    let mut client = Client::start(false);
    client.initialize(json!({"roots": {"listChanged": true}})).await;
    client.answer_roots(list(&["file:///a"])).await;
    client.wait_seen(&seen_list(&["file:///a"], Trigger::Initialized)).await;
    client.call("view_status", json!({})).await;
    let call = client.send_call("refresh_roots", json!({})).await;
    client.answer_roots(list(&["file:///b"])).await;
    let answer = client.response(call).await;
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert_eq!(client.seen().last(), Some(&Seen::Refreshed(vec!["file:///b".into()])));
}

#[tokio::test]
async fn a_client_that_announces_nothing_is_asked_with_each_call() {
    let mut client = Client::start(false);
    client.initialize(json!({"roots": {}})).await;
    client.answer_roots(list(&["file:///a"])).await;
    client.wait_seen(&seen_list(&["file:///a"], Trigger::Initialized)).await;
    client.wait_settled().await;
    let call = client.send_call("view_status", json!({})).await;
    client.answer_roots(list(&["file:///a", "file:///b"])).await;
    assert_eq!(client.response(call).await["result"]["structuredContent"]["generation"], 2);
}

#[tokio::test]
async fn wrong_arguments_are_told_with_the_known_operations() {
    let mut client = Client::start(true);
    client.initialize(json!({})).await;
    for arguments in [json!({}), json!({"path": "a", "operation": "eat"}), json!({"path": "a", "operation": "rename"})]
    {
        let answer = client.call("explain_access", arguments).await;
        assert_eq!(answer["isError"], true);
        let text = answer["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("lookup") && text.contains("rename"), "{text}");
    }
    let answer = client.call("explain_access", json!({"path": "a", "operation": "read"})).await;
    assert_eq!(answer["structuredContent"]["op"], "read");
    assert_eq!(client.call("boundary_log", json!({"limit": 0})).await["isError"], true);
    let log = client.call("boundary_log", json!({"limit": 3, "denied_only": true})).await;
    assert_eq!(log["structuredContent"]["events"][0]["event"], "decision");
}

#[tokio::test]
async fn without_a_session_the_list_comes_with_the_call() {
    let mut client = Client::start(false);
    let answer = client.request("tools/call", client::inline_call("view_status", json!({"roots": {}}), None)).await;
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    assert_eq!(answer["result"]["inputRequests"]["roots"]["method"], "roots/list");
    let state = answer["result"]["requestState"].as_str().unwrap();
    let retry = Some((state, json!({"roots": [{"uri": "file:///a"}, 7]})));
    let answer = client.request("tools/call", client::inline_call("view_status", json!({"roots": {}}), retry)).await;
    assert_eq!(answer["result"]["structuredContent"]["generation"], 1, "{answer}");
    assert_eq!(client.seen(), [seen_list(&["file:///a", "7"], Trigger::ListChanged)]);
    let answer = client.request("tools/call", client::inline_call("view_status", json!({"roots": {}}), None)).await;
    assert_eq!(answer["result"]["resultType"], "complete");
    client.notify("notifications/roots/list_changed").await;
    let answer = client.request("tools/call", client::inline_call("view_status", json!({"roots": {}}), None)).await;
    assert_eq!(answer["result"]["resultType"], "input_required");
    assert_eq!(client.unanswered(), 0);
}

#[tokio::test]
async fn without_a_session_a_client_without_roots_is_never_asked() {
    let mut client = Client::start(false);
    let answer = client.request("tools/call", client::inline_call("view_status", json!({}), None)).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("--root"), "{answer}");
    let mut client = Client::start(true);
    let answer = client.request("tools/call", client::inline_call("view_status", json!({}), None)).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
}
