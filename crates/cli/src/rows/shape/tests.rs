//! Against the codecs themselves, and with random bytes for every type.

use super::*;

fn key<K: Key + ?Sized>(key: &K) -> String {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    Shape::new(Side::Key, K::TYPE.as_str())
        .to_json(&bytes)
        .to_string()
}

fn value<V: Stored + ?Sized>(value: &V) -> String {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    Shape::new(Side::Value, V::TYPE.as_str())
        .to_json(&bytes)
        .to_string()
}

#[test]
fn every_type_is_shown_by_its_meaning() {
    assert_eq!(key(&7u8), "7");
    assert_eq!(key(&-7i64), "-7");
    assert_eq!(key(&i128::MIN), format!("\"{}\"", i128::MIN));
    assert_eq!(key(&u64::MAX), u64::MAX.to_string());
    assert_eq!(key("a\"b"), r#""a\"b""#);
    assert_eq!(key(&[1u8, 255][..]), "\"0x01ff\"");
    assert_eq!(key(&(3u16, "a\0b", true)), r#"[3,"a\u0000b",true]"#);
    assert_eq!(key(&[-1i8, 1]), "[-1,1]");
    assert_eq!(key(&()), "[]");
    assert_eq!(value(&i16::MIN), "-32768");
    assert_eq!(value(&u128::MAX), format!("\"{}\"", u128::MAX));
    assert_eq!(value(&0.1f32), "0.1");
    assert_eq!(value(&-0.0f64), "-0.0");
    assert_eq!(value(&f64::NEG_INFINITY), "\"-inf\"");
    assert_eq!(value(&f32::NAN), "\"nan:7fc00000\"");
    assert_eq!(value(&None::<&str>), "null");
    assert_eq!(value(&(Some("x"), 1u8)), r#"["x",1]"#);
    assert_eq!(value(&Some(None::<u8>)), r#"{"some":null}"#);
    assert_eq!(value(&[Some(vec![1u8]), None]), r#"["0x01",null]"#);
}

/// SplitMix64: the same seed, the same test.
fn draw(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*seed ^ (*seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The name of a random type.
fn random_type(seed: &mut u64, side: Side, depth: usize) -> String {
    const PLAIN: [&str; 15] = [
        "u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128", "bool", "str",
        "bytes", "f32", "f64",
    ];
    let part = |seed: &mut u64| random_type(seed, side, depth + 1);
    match draw(seed) % 6 {
        0 if depth < 3 => format!("({},{})", part(seed), part(seed)),
        1 if depth < 3 => format!("[{};{}]", part(seed), draw(seed) % 3),
        2 if depth < 3 && side == Side::Value => format!("option({})", part(seed)),
        3 if depth < 3 => "()".to_owned(),
        _ => {
            let known = if side == Side::Key { 13 } else { PLAIN.len() };
            PLAIN[draw(seed) as usize % known].to_owned()
        }
    }
}

#[test]
fn stored_bytes_are_the_same_after_a_conversion_to_text_and_back() {
    let (mut decoded, mut seed) = (0, 7);
    for round in 0..20_000 {
        let side = if round % 2 == 0 {
            Side::Key
        } else {
            Side::Value
        };
        let name = random_type(&mut seed, side, 0);
        let shape = Shape::new(side, &name);
        assert!(shape.kind().is_some(), "{name}");
        // Small bytes are plausible lengths and truth values.
        let (count, small) = (draw(&mut seed) % 24, !draw(&mut seed).is_multiple_of(3));
        let byte = |seed: &mut u64| (draw(seed) % if small { 3 } else { 256 }) as u8;
        let bytes: Vec<u8> = (0..count).map(|_| byte(&mut seed)).collect();
        let text = shape.to_json(&bytes).to_string();
        let json = serde_json::from_str(&text).unwrap();
        assert_eq!(shape.to_bytes(&json).as_ref(), Ok(&bytes), "{name} {text}");
        decoded += u32::from(!text.contains("raw"));
    }
    assert!(
        decoded > 1_000,
        "only {decoded} were encodings of their type"
    );
}

#[test]
fn every_float_is_the_same_after_a_conversion() {
    let mut seed = 3;
    for _ in 0..20_000 {
        for (name, size) in [("f32", 4), ("f64", 8)] {
            let shape = Shape::new(Side::Value, name);
            let bytes = draw(&mut seed).to_le_bytes()[..size].to_vec();
            let text = shape.to_json(&bytes).to_string();
            assert!(!text.contains("raw"), "{text}");
            let json = serde_json::from_str(&text).unwrap();
            assert_eq!(shape.to_bytes(&json), Ok(bytes), "{text}");
        }
    }
}

#[test]
fn a_value_of_another_type_is_refused_with_a_reason() {
    for (side, name, json, words) in [
        (Side::Key, "u8", "256", "256 is not u8"),
        (Side::Key, "i8", "-129", "-129 is not i8"),
        (Side::Key, "u32", "1.5", "1.5 is not u32"),
        (Side::Key, "u32", "\"x\"", "\"x\" is not u32"),
        (Side::Key, "str", "7", "7 is not a string"),
        (Side::Value, "bytes", "\"0xabc\"", "hexadecimal"),
        (Side::Key, "(u8,str)", "[1]", "[1] is not an array of 2"),
        (Side::Value, "f64", "\"much\"", "f64"),
        (Side::Value, "shop::Order", "{}", "shop::Order"),
        (Side::Value, "bool", "{\"raw\":\"yes\"}", "hexadecimal"),
    ] {
        let json = serde_json::from_str(json).unwrap();
        let refused = Shape::new(side, name).to_bytes(&json).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn a_name_with_too_many_parts_is_treated_as_a_type_of_the_users_own() {
    let deep = format!("{}u8{}", "(".repeat(40), ")".repeat(40));
    for name in [
        "[();99999999999]",
        "[[u8;60000];60000]",
        &deep,
        "shop::Order",
        "u9",
        "é",
    ] {
        assert!(Shape::new(Side::Key, name).kind().is_none(), "{name}");
    }
    for name in ["option(u8)", "f64"] {
        assert!(
            Shape::new(Side::Key, name).kind().is_none(),
            "a key has no {name}"
        );
    }
}
