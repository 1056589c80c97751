//! Log records of pages, built from the document and decoded by the engine.

use foxton_log::{Lsn, RecordView};
use foxton_store::paged::PageId;
use foxton_store::paged::page::{KeyBytes, OwnedRow, PageKind, PageOperation, RowFlags};
use foxton_store::paged::page_log::{RowBefore, RowUndo};
use foxton_store::paged::recovery::ChainedChange;
use foxton_store::paged::recovery::record::{
    CommitTail, Compensation, Link, RecoveryRecord, Update, compensation_bytes,
};
use foxton_store::paged::recovery::tables::{Tables, TransactionEntry, TransactionState};

use super::{DOCUMENT, TABLE, table};

/// A field of a record: a number, or bytes.
#[derive(Clone)]
enum Part {
    Number(u64),
    Bytes(Vec<u8>),
}

fn number(number: u64) -> Part {
    Part::Number(number)
}

fn bytes(bytes: &[u8]) -> Part {
    Part::Bytes(bytes.to_vec())
}

/// Appends the fields that `list` names, in its order, with these contents. A number without a size
/// has eight bytes, and *bytes* have a length in front.
fn append_fields(encoded: &mut Vec<u8>, list: &str, parts: &[(&str, Part)]) {
    let mut named = 0;
    for field in list.split("; ").filter(|field| *field != "none") {
        let (name, size) = match field.rsplit_once(' ') {
            Some((name, size)) if size.starts_with('u') || size == "bytes" => (name, size),
            _ => (field, ""),
        };
        let name = name.trim_start_matches("each ");
        let part = parts.iter().find(|(of, _)| *of == name || *of == field);
        named += 1;
        match (&part.unwrap_or_else(|| panic!("{field} of {list}")).1, size) {
            (Part::Number(number), "" | "u64") => encoded.extend(number.to_le_bytes()),
            (Part::Number(number), size) => {
                let bits: usize = size[1..].parse().expect("a size such as u16");
                encoded.extend(&number.to_le_bytes()[..bits / 8]);
            }
            (Part::Bytes(bytes), "bytes") => {
                encoded.extend((bytes.len() as u16).to_le_bytes());
                encoded.extend(bytes);
            }
            (Part::Bytes(bytes), _) => encoded.extend(bytes),
        }
    }
    assert_eq!(named, parts.len(), "all parts of {list}");
}

/// Returns the operation with this number, from the document.
fn operation(tag: u8, parts: &[(&str, Part)]) -> Vec<u8> {
    let rows = table(7, "number u8");
    let row = rows.iter().find(|row| row[0] == tag.to_string());
    let mut encoded = vec![tag];
    append_fields(&mut encoded, row.expect("the operation")[2], parts);
    encoded
}

/// Returns a row as operations have it.
fn row_bytes(key: &[u8], value: &[u8], reserved: u64, flags: u64) -> Part {
    let list = "key bytes; value bytes; reserved u16; flags u16";
    let spaced = DOCUMENT.replace('\n', " ");
    assert!(spaced.contains(&format!("a *row* is {list}.")), "a row");
    let mut encoded = Vec::new();
    let parts = [
        ("key", bytes(key)),
        ("value", bytes(value)),
        ("reserved", number(reserved)),
        ("flags", number(flags)),
    ];
    append_fields(&mut encoded, list, &parts);
    Part::Bytes(encoded)
}

/// Number of an operation, the operation, and its fields.
type OperationCase<'c> = (u8, PageOperation<'c>, &'c [(&'c str, Part)]);

#[test]
fn operations_have_the_bytes_of_the_document() {
    let slot = ("slot", number(3));
    let format = PageOperation::Format {
        kind: PageKind::Leaf,
        level: 0,
        table: 5,
        low: KeyBytes::from_slice(b"ab"),
        high: Some(KeyBytes::from_slice(b"ax")),
        rows: vec![OwnedRow {
            key: KeyBytes::from_slice(b"abc"),
            value: b"value".to_vec(),
            reserved_bytes: 9,
            flags: RowFlags::GHOST,
        }],
    };
    let format_parts = [
        ("kind", number(1)),
        ("level", number(0)),
        ("table", number(5)),
        ("low", bytes(b"ab")),
        ("flag", number(1)),
        ("high", bytes(b"ax")),
        ("rows", number(1)),
        ("each row", row_bytes(b"abc", b"value", 9, 1)),
    ];
    let insert = PageOperation::Insert {
        slot: 3,
        key: b"key",
        value: b"value",
        reserved: 9,
        flags: RowFlags::OVERFLOW,
    };
    let insert_parts = [slot.clone(), ("row", row_bytes(b"key", b"value", 9, 2))];
    let value = ("value", bytes(b"value"));
    let map = PageOperation::MapPages {
        indexes: smallvec::smallvec![70],
        is_used: true,
    };
    let map_parts = [
        ("count", number(1)),
        ("index", number(70)),
        ("used", number(1)),
    ];
    let high = KeyBytes::from_slice(b"high");
    let (replaced, flags) = (&b"value"[..], RowFlags::GHOST);
    let cases: [OperationCase<'_>; 10] = [
        (1, format, &format_parts),
        (2, insert, &insert_parts),
        (
            3,
            PageOperation::Replace {
                slot: 3,
                value: replaced,
            },
            &[slot.clone(), value.clone()],
        ),
        (
            4,
            PageOperation::SetFlags { slot: 3, flags },
            &[slot.clone(), ("flags", number(1))],
        ),
        (
            5,
            PageOperation::Remove { slot: 3 },
            std::slice::from_ref(&slot),
        ),
        (
            6,
            PageOperation::Truncate {
                slot: 3,
                high: high.clone(),
            },
            &[slot.clone(), ("high", bytes(b"high"))],
        ),
        (7, map, &map_parts),
        (
            8,
            PageOperation::Widen { high: Some(high) },
            &[("flag", number(1)), ("high", bytes(b"high"))],
        ),
        (
            8,
            PageOperation::Widen { high: None },
            &[("flag", number(0)), ("high", bytes(b""))],
        ),
        (
            9,
            PageOperation::Rewrite {
                slot: 3,
                value: replaced,
                flags,
            },
            &[slot.clone(), ("flags", number(1)), value.clone()],
        ),
    ];
    assert_eq!(table(7, "number u8").len(), 9, "each operation has a case");
    for (tag, operation_of, parts) in cases {
        let encoded = operation(tag, parts);
        assert_eq!(PageOperation::decode(&encoded), Some(operation_of), "{tag}");
    }
    assert_eq!(PageOperation::decode(&[10]), None, "there is no other");
}

#[test]
fn undo_has_the_bytes_of_the_document() {
    let tags = table(7, "tag u8");
    let list = "tag u8; table u64; key bytes";
    assert!(DOCUMENT.replace('\n', " ").contains(list));
    let (value, flags) = (&b"before"[..], RowFlags::GHOST);
    let parts = [("value", bytes(value)), ("flags", number(1))];
    let cases = [
        RowBefore::Absent,
        RowBefore::Value(value),
        RowBefore::Flags(flags),
        RowBefore::Row(flags, value),
    ];
    assert_eq!(tags.len(), cases.len());
    for (row, before) in tags.iter().zip(cases) {
        let tag: u64 = row[0].parse().expect("a number");
        let mut encoded = Vec::new();
        let head = [
            ("tag", number(tag)),
            ("table", number(TABLE)),
            ("key", bytes(b"key")),
        ];
        append_fields(&mut encoded, list, &head);
        let named = parts.iter().filter(|(name, _)| row[2].contains(name));
        append_fields(&mut encoded, row[2], &named.cloned().collect::<Vec<_>>());
        let undo = RowUndo::decode(&encoded).expect("an undo");
        assert_eq!(
            (undo.table, undo.key, undo.before),
            (TABLE, &b"key"[..], before)
        );
        let mut redo = Vec::new();
        undo.operation(3).encode(&mut redo);
        assert!(row[3].starts_with(&redo[0].to_string()), "{row:?}");
    }
}

const AT: Lsn = Lsn::new(10_000);

/// Returns the kind and the payload of a record, from the document. Parts of no such field are
/// appended.
fn record(name: &str, parts: &[(&str, Part)], more: &[u8]) -> (u8, Vec<u8>) {
    let rows = table(7, "kind");
    let row = rows
        .iter()
        .find(|row| row[1].split(':').next() == Some(name));
    let row = row.unwrap_or_else(|| panic!("a record {name}"));
    let list = row[2].trim_start_matches("of each: ");
    let list = list.trim_end_matches("; their entries");
    let list = match list.split_once("; if tables in memory changed: ") {
        Some((list, rest)) => {
            assert_eq!(rest, "first part or 0; changes, as in kind 4");
            list
        }
        None => list,
    };
    let mut payload = Vec::new();
    append_fields(&mut payload, list, parts);
    payload.extend(more);
    (row[0].parse().expect("a kind"), payload)
}

#[track_caller]
fn assert_record((kind, payload): (u8, Vec<u8>), expected: &RecoveryRecord<'_>) {
    let view = RecordView {
        lsn: AT,
        end: Lsn::new(AT.bytes() + 24 + payload.len() as u64),
        kind,
        payload: &payload,
    };
    let decoded = RecoveryRecord::decode(&view).expect("well formed");
    assert_eq!(decoded.as_ref(), Some(expected));
}

#[test]
fn records_have_the_bytes_of_the_document() {
    let link = Link {
        transaction: Lsn::new(1000),
        prev: Lsn::new(5000),
    };
    let link_parts = [("transaction", number(1000)), ("prev", number(5000))];
    let change = ChainedChange {
        page: PageId(77),
        previous: Lsn::new(4711),
        redo: b"redo",
    };
    let page_parts = [("page", number(77)), ("previous", number(4711))];
    let reserve = compensation_bytes(5);
    let rest = [("undo", bytes(b"undo!")), ("redo", bytes(b"redo"))];
    let head = [("reserve", number(reserve)), ("undo bytes", number(5))];
    let space = [("space", number(1000))];
    let parts = [&head[..], &link_parts, &space, &page_parts, &rest].concat();
    let update = Update {
        link: Some(link),
        undo_space: 1000,
        reserve: reserve as u32,
        undo: b"undo!",
        change,
    };
    assert_record(
        record("UPDATE", &parts, b""),
        &RecoveryRecord::Update(update),
    );
    // The first record of a transaction: bit 31, and no link.
    let (kind, mut first) = record("UPDATE", &parts, b"");
    first[7] |= 0x80;
    first.drain(8..24);
    let begins = Update {
        link: None,
        ..update
    };
    assert_record((kind, first), &RecoveryRecord::Update(begins));

    let undone = [("undo next", number(1000))];
    let parts = [&link_parts[..], &space, &undone, &page_parts, &rest[1..]].concat();
    let compensation = Compensation {
        link,
        undo_space: 1000,
        undo_next: Some(Lsn::new(1000)),
        change,
    };
    let compensation = RecoveryRecord::Compensation(compensation);
    assert_record(record("COMPENSATION", &parts, b""), &compensation);

    let parts = [&page_parts[..], &[("redo bytes", number(4))], &rest[1..]].concat();
    let (kind, one) = record("STRUCTURE", &parts, b"");
    assert_record((kind, one), &RecoveryRecord::Structure(vec![change]));

    assert_record(
        record("COMMIT", &link_parts, b""),
        &RecoveryRecord::Commit(link, None),
    );
    let tail = [&8_u64.to_le_bytes()[..], b"changes"].concat();
    let changed = CommitTail {
        first_part: Lsn::new(8),
        changes: b"changes",
    };
    let commit = RecoveryRecord::Commit(link, Some(changed));
    assert_record(record("COMMIT", &link_parts, &tail), &commit);
    assert_record(
        record("ABORT", &link_parts, b""),
        &RecoveryRecord::Abort(link),
    );
    assert_record(record("END", &link_parts, b""), &RecoveryRecord::End(link));
    assert_record(
        record("CHECKPOINT_BEGIN", &[], b""),
        &RecoveryRecord::CheckpointBegin,
    );

    let entries = table(7, "entry of CHECKPOINT_END");
    let transaction = [
        ("transaction", number(1000)),
        ("last", number(5000)),
        ("undo next", number(u64::MAX)),
        ("space", number(80)),
        ("state", number(1)),
    ];
    let page = [("page", number(77)), ("recovery LSN", number(4800))];
    let mut more = Vec::new();
    let list = entries[0][1].split(", 0 if").next().expect("fields");
    append_fields(&mut more, list, &transaction);
    let list = entries[1][1]
        .split(", the position")
        .next()
        .expect("fields");
    append_fields(&mut more, list, &page);
    let head = [
        ("begin", number(9000)),
        ("transactions", number(1)),
        ("pages", number(1)),
    ];
    let entry = TransactionEntry {
        last: Lsn::new(5000),
        undo_next: None,
        undo_space: 80,
        state: TransactionState::Aborting,
    };
    let tables = Tables {
        transactions: [(Lsn::new(1000), entry)].into(),
        pages: [(PageId(77), Lsn::new(4800))].into(),
    };
    let end = RecoveryRecord::CheckpointEnd(Lsn::new(9000), tables);
    assert_record(record("CHECKPOINT_END", &head, &more), &end);
    assert_eq!(table(7, "kind").len(), 8, "each record has a case");
}
