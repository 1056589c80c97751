//! Comma-separated values: the columns of a table, and its cells.
//!
//! A tuple has a column for each part; other types have one. Text, numbers and bytes are written as
//! they are. Options and nested types are JSON in their cell.

use serde_json::Value;

use super::shape::{Kind, Shape};
use super::text;

/// The columns of keys, or of values: `what`, or `what.1`, `what.2` and so on.
pub(crate) fn names(shape: &Shape, what: &str) -> Vec<String> {
    match parts(shape) {
        Some(parts) => (1..=parts.len())
            .map(|part| format!("{what}.{part}"))
            .collect(),
        None => vec![what.to_owned()],
    }
}

/// The cells of a key or a value; `None` if the bytes do not match their type, which cells cannot
/// show.
pub(crate) fn cells(shape: &Shape, bytes: &[u8]) -> Option<Vec<String>> {
    let json = shape.to_json(bytes);
    if json.get("raw").is_some() {
        return None;
    }
    match (parts(shape), json) {
        (Some(kinds), Value::Array(list)) => Some(
            kinds
                .iter()
                .zip(&list)
                .map(|(kind, json)| cell(Some(kind), json))
                .collect(),
        ),
        (_, json) => Some(vec![cell(shape.kind(), &json)]),
    }
}

/// The JSON of [`cells`], or why a cell is bad.
pub(crate) fn json(shape: &Shape, cells: &[&str]) -> Result<Value, String> {
    match (parts(shape), cells) {
        (Some(kinds), cells) => {
            let parts = kinds.iter().zip(cells);
            let parts: Result<Vec<Value>, String> =
                parts.map(|(kind, text)| uncell(Some(kind), text)).collect();
            parts.map(Value::Array)
        }
        (None, [text]) => uncell(shape.kind(), text),
        (None, _) => Err("it has one cell".to_owned()),
    }
}

/// The parts with columns of their own. `()` has no parts, and one column, which is empty.
fn parts(shape: &Shape) -> Option<&[Kind]> {
    match shape.kind() {
        Some(Kind::Tuple(parts)) if !parts.is_empty() => Some(parts),
        _ => None,
    }
}

/// True if the cell is the string itself, and not JSON.
fn is_plain(kind: Option<&Kind>) -> bool {
    !matches!(
        kind,
        Some(Kind::Tuple(_) | Kind::Array(..) | Kind::Option(_) | Kind::Bool)
    )
}

fn cell(kind: Option<&Kind>, json: &Value) -> String {
    match json {
        Value::String(text) if is_plain(kind) => text.clone(),
        json => json.to_string(),
    }
}

fn uncell(kind: Option<&Kind>, cell: &str) -> Result<Value, String> {
    match is_plain(kind) {
        true => Ok(Value::String(cell.to_owned())),
        false => text::value(cell.as_bytes())
            .map_err(|what| format!("\"{}\": {what}", text::brief(cell))),
    }
}

#[cfg(test)]
mod tests {
    use foxton::codec::Value as Stored;

    use super::super::shape::Side;
    use super::*;

    fn check<V: Stored + ?Sized>(value: &V, columns: &[&str], expected: &[&str]) {
        let shape = Shape::new(Side::Value, V::TYPE.as_str());
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        assert_eq!(names(&shape, "value"), columns);
        let cells = cells(&shape, &bytes).unwrap();
        assert_eq!(cells, expected);
        let cells: Vec<&str> = cells.iter().map(|cell| &**cell).collect();
        let json = json(&shape, &cells).unwrap();
        assert_eq!(shape.to_bytes(&json), Ok(bytes));
    }

    #[test]
    fn cells_are_written_as_a_person_would() {
        check("a,\"b\n", &["value"], &["a,\"b\n"]);
        check("null", &["value"], &["null"]);
        check(&-5i16, &["value"], &["-5"]);
        check(
            &u128::MAX,
            &["value"],
            &["340282366920938463463374607431768211455"],
        );
        check(&0.5f32, &["value"], &["0.5"]);
        check(&f64::INFINITY, &["value"], &["inf"]);
        check(&true, &["value"], &["true"]);
        check(&[7u8][..], &["value"], &["0x07"]);
        check(&(), &["value"], &["[]"]);
        check(
            &("x", Some("y"), [1u8, 2]),
            &["value.1", "value.2", "value.3"],
            &["x", "\"y\"", "[1,2]"],
        );
        check(
            &(None::<&str>, ((1u8, ""),)),
            &["value.1", "value.2"],
            &["null", "[[1,\"\"]]"],
        );
    }

    #[test]
    fn bytes_that_do_not_match_their_type_have_no_cells() {
        let shape = Shape::new(Side::Value, "u32");
        assert_eq!(cells(&shape, &[1]), None);
        let words = json(&Shape::new(Side::Value, "bool"), &["yes"]).unwrap_err();
        assert!(words.starts_with("\"yes\": it is not JSON"), "{words}");
    }
}
