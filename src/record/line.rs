use serde::Serialize;
use serde_json::Value;

/// The longest line, in bytes with its newline. A reader may rely on it.
pub const LINE_MAX: usize = 64 * 1024;

/// What a string and a list are cut to when a line would be longer. At worst a byte becomes six (`\u0001`), and an event
/// has at most six strings or six lists that grow with the input, so the sum stays below [`LINE_MAX`].
const STRING_MAX: usize = 1024;
const LIST_MAX: usize = 8 * 1024;

/// The envelope of every event.
#[derive(Serialize)]
pub(super) struct Line<'a, T: Serialize> {
    pub(super) time: String,
    pub(super) session: &'a str,
    pub(super) event: &'static str,
    #[serde(flatten)]
    pub(super) body: &'a T,
}

impl<T: Serialize> Line<'_, T> {
    /// One JSON object and a newline, at most [`LINE_MAX`] bytes. An event that had to be cut says `"truncated":true`.
    pub(super) fn render(&self) -> serde_json::Result<String> {
        let mut line = serde_json::to_string(self)?;
        if line.len() >= LINE_MAX {
            let mut value: Value = serde_json::from_str(&line)?;
            if let Value::Object(fields) = &mut value {
                fields.values_mut().for_each(cut);
                fields.insert("truncated".into(), Value::Bool(true));
            }
            line = serde_json::to_string(&value)?;
        }
        line.push('\n');
        Ok(line)
    }
}

fn cut(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > STRING_MAX => {
            text.truncate(text.floor_char_boundary(STRING_MAX));
            text.push('…');
        }
        Value::Array(items) => {
            let mut budget = LIST_MAX;
            let fit = items.iter().take_while(|item| {
                let size = item.to_string().len() + 1;
                let fits = size <= budget;
                budget = budget.saturating_sub(size);
                fits
            });
            let fit = fit.count();
            items.truncate(fit);
        }
        _ => {}
    }
}
