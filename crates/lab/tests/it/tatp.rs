//! Faults in the tables of tatp are found, and the row is named: one fault at a time, in a database
//! that was loaded and used.

use foxton::{Database, Options, Transaction};
use foxton_lab::{
    driver::Client,
    measure::outcome::{Ended, Outcome, Tally},
    progress::Audience,
    workload::{
        contract::{Loaded, Workload},
        loading::Loading,
        tatp::{
            ACCESS_INFOS, CALL_FORWARDINGS, Mix, SPECIAL_FACILITIES, SUBSCRIBERS, Shape, Tatp,
            client::{DELETE, KINDS},
            initial::{access_infos, facilities, forwarding, subscriber},
        },
    },
};

const TRANSACTIONS: u32 = 400;

fn shape() -> Shape {
    Shape {
        subscribers: 60,
        ..Shape::usual()
    }
}

/// A database that was loaded and used, and its client's report.
fn used() -> (Database, Box<dyn Loaded>, Tally) {
    used_by(shape())
}

fn used_by(shape: Shape) -> (Database, Box<dyn Loaded>, Tally) {
    let workload = Tatp::new(shape);
    let mut options = Options::tiny();
    workload.indexes(&mut options.indexes);
    let db = Database::in_memory(options).unwrap();
    let progress = Audience::Nobody.count("", 0, "");
    let mut loaded = workload.load(&Loading::new(&db, 2, &progress)).unwrap();
    let mut tally = Tally::new(KINDS);
    let mut client: Box<dyn Client> = loaded.client(&db, 0);
    (0..TRANSACTIONS).for_each(|_| tally.count(client.transaction()));
    (db, loaded, tally)
}

/// A fault, and the message that the check must give.
type Fault = (fn(&mut Transaction) -> foxton::Result<()>, &'static str);

fn change_subscriber(tx: &mut Transaction, byte: usize, to: u8) -> foxton::Result<()> {
    let mut row = tx.get(&SUBSCRIBERS, &9)?.expect("it was loaded");
    row[byte] = to;
    tx.put(&SUBSCRIBERS, &9, &row)
}

/// The first subscriber whose first facility has no lower type, and so no facility of type 1.
fn without_type_1() -> u32 {
    let of = |id: u32| facilities(&shape(), id);
    let found = (1..60).find(|&id| of(id)[0].sf_type > 1);
    found.expect("some subscriber has none")
}

fn forward(tx: &mut Transaction, key: (u32, u8, u8), end: u8, to: &[u8; 15]) -> foxton::Result<()> {
    tx.put(&CALL_FORWARDINGS, &key, &forwarding(&shape(), end, to)[..])
}

const FAULTS: &[Fault] = &[
    (
        |tx| tx.delete(&SUBSCRIBERS, &9).map(drop),
        "row 9 of tatp_subscriber is gone",
    ),
    (
        |tx| tx.insert(&SUBSCRIBERS, &61, &subscriber(&shape(), 61)[..]),
        "row 61 of tatp_subscriber was never loaded",
    ),
    (
        |tx| change_subscriber(tx, 40, 7).and_then(|()| change_subscriber(tx, 41, 7)),
        "row 9 of tatp_subscriber is not what was loaded",
    ),
    (
        |tx| change_subscriber(tx, 15, 2),
        "bit_1 of row 9 of tatp_subscriber is no bit",
    ),
    (
        |tx| change_subscriber(tx, 0, b'7'),
        "row 9 of tatp_subscriber is not what was loaded",
    ),
    (
        |tx| {
            let key = (5, access_infos(&shape(), 5)[0].0);
            tx.put(&ACCESS_INFOS, &key, &b"0123456789"[..])
        },
        "of tatp_access_info is not what was loaded",
    ),
    (
        |tx| tx.put(&ACCESS_INFOS, &(5, 9), &b"0123456789"[..]),
        "row (5, 9) of tatp_access_info was never loaded",
    ),
    (
        |tx| {
            let facility = &facilities(&shape(), 6)[0];
            let mut row = facility.row.clone();
            row[0] ^= 1;
            tx.put(&SPECIAL_FACILITIES, &(6, facility.sf_type), &row)
        },
        "of tatp_special_facility is not what was loaded",
    ),
    (
        |tx| {
            let key = (6, facilities(&shape(), 6)[0].sf_type);
            tx.delete(&SPECIAL_FACILITIES, &key).map(drop)
        },
        "of tatp_special_facility is gone",
    ),
    (
        |tx| forward(tx, (without_type_1(), 1, 8), 9, b"012345678901234"),
        "of tatp_call_forwarding refers to no facility",
    ),
    (
        |tx| {
            let key = (6, facilities(&shape(), 6)[0].sf_type, 9);
            forward(tx, key, 10, b"012345678901234")
        },
        "of tatp_call_forwarding begins at another hour",
    ),
    (
        |tx| {
            let key = (6, facilities(&shape(), 6)[0].sf_type, 8);
            forward(tx, key, 25, b"012345678901234")
        },
        "of tatp_call_forwarding ends at no hour",
    ),
    (
        |tx| {
            let key = (6, facilities(&shape(), 6)[0].sf_type, 8);
            forward(tx, key, 9, b"01234567890123x")
        },
        "of tatp_call_forwarding leads to no number",
    ),
    (
        |tx| {
            let (key, _) = tx.range(&CALL_FORWARDINGS, ..).first()?.expect("some");
            tx.delete(&CALL_FORWARDINGS, &key).map(drop)
        },
        "rows; ",
    ),
];

#[test]
fn every_fault_is_found_and_its_row_named() {
    for (number, (plant, words)) in FAULTS.iter().enumerate() {
        let (db, mut loaded, tally) = used();
        assert_eq!(loaded.check(&db, &tally), Ok(()), "before fault {number}");
        db.run(plant).unwrap();
        let what = loaded.check(&db, &tally).unwrap_err();
        assert!(what.contains(words), "fault {number}: {what}");
    }
}

#[test]
fn a_transaction_that_was_not_reported_is_missed() {
    let (db, mut loaded, _) = used();
    let what = loaded.check(&db, &Tally::new(KINDS)).unwrap_err();
    assert!(
        what.contains("were loaded, 0 inserted and 0 deleted"),
        "{what}"
    );
}

#[test]
fn more_deletes_than_there_were_rows_are_told_of() {
    let (db, mut loaded, mut tally) = used();
    (0..1_000).for_each(|_| tally.count(Ended::ok(DELETE)));
    let what = loaded.check(&db, &tally).unwrap_err();
    assert!(what.contains("inserted and 10"), "{what}");
}

#[test]
fn each_transaction_can_be_run_alone() {
    for kind in 0..KINDS.len() {
        let mix = Mix::Alone(kind);
        let (db, mut loaded, tally) = used_by(Shape { mix, ..shape() });
        let ran: u64 = Outcome::ALL
            .map(|outcome| tally.of_kind(kind, outcome))
            .iter()
            .sum();
        assert_eq!(
            (ran, tally.attempts()),
            (TRANSACTIONS.into(), TRANSACTIONS.into())
        );
        assert_eq!(loaded.check(&db, &tally), Ok(()), "{mix}");
    }
}

#[test]
fn a_subscriber_that_is_gone_ends_every_transaction_that_needs_it() {
    let (db, mut loaded, _) = used();
    db.run(|tx| {
        for id in 1..=60 {
            tx.delete(&SUBSCRIBERS, &id)?;
        }
        Ok(())
    })
    .unwrap();
    let mut client = loaded.client(&db, 1);
    let failures = (0..100).filter_map(|_| client.transaction().failure);
    let failures: Vec<_> = failures.collect();
    assert!(!failures.is_empty());
    assert!(
        failures
            .iter()
            .all(|what| what.contains("of tatp_subscriber is gone"))
    );
}
