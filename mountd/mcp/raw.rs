//! A list as it came over the wire, split into elements that are judged one by one.

use rootsfs::roots::RootInput;
use serde_json::Value;

/// Splits the result of `roots/list` (MCP, "Roots"). An element that is no object with a string `uri` is kept as its
/// own JSON text: no URI looks like that, so the judge refuses it singly and it stands in the status as it was sent.
///
/// # Errors
/// The list is malformed as a whole: `roots` is missing or no array.
pub(super) fn split_list(result: &Value) -> Result<Vec<RootInput>, String> {
    let Some(roots) = result.get("roots") else {
        return Err("the client's answer to roots/list has no `roots`".into());
    };
    let Some(roots) = roots.as_array() else {
        return Err("the client's answer to roots/list has a `roots` that is not an array".into());
    };
    Ok(roots.iter().map(element).collect())
}

fn element(raw: &Value) -> RootInput {
    let text = |key| raw.get(key).and_then(Value::as_str).map(str::to_owned);
    RootInput {
        uri: text("uri").unwrap_or_else(|| raw.to_string()),
        name: text("name"),
        entry: None,
        path_allowed: false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_are_split_singly() {
        let list = split_list(&json!({"roots": [
            {"uri": "file:///a", "name": "A", "extra": 1},
            {"uri": "file:///b", "name": 7},
            {"uri": 5},
            {"name": "no uri"},
            "file:///c",
            null,
            ["file:///d", "n", null],
        ]}))
        .unwrap();
        let uris: Vec<_> = list.iter().map(|root| root.uri.as_str()).collect();
        assert_eq!(
            uris,
            [
                "file:///a",
                "file:///b",
                r#"{"uri":5}"#,
                r#"{"name":"no uri"}"#,
                r#""file:///c""#,
                "null",
                r#"["file:///d","n",null]"#
            ]
        );
        assert_eq!(list[0].name.as_deref(), Some("A"));
        assert_eq!(list[1].name, None);
        assert!(list.iter().all(|root| !root.path_allowed));
    }

    #[test]
    fn an_empty_list_is_a_list_and_no_list_is_none() {
        assert_eq!(split_list(&json!({"roots": []})).unwrap(), []);
        for malformed in
            [json!({}), json!(null), json!({"roots": null}), json!({"roots": {}}), json!([]), json!("roots")]
        {
            split_list(&malformed).unwrap_err();
        }
    }
}
