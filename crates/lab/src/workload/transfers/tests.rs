//! The auditor and the check find their faults.

use foxton::Options;

use super::*;
use crate::progress::Audience;

const BANK: Transfers = Transfers {
    accounts: 20,
    reads: 0,
    seed: 1,
};

fn loaded() -> (Database, Box<dyn Loaded>) {
    let db = Database::in_memory(Options::tiny()).unwrap();
    let nobody = Audience::Nobody.count("", 0, "");
    let loaded = BANK.load(&Loading::new(&db, 2, &nobody)).unwrap();
    (db, loaded)
}

/// Half a transfer.
fn lose_a_cent(db: &Database) {
    db.run(|tx| tx.put(&ACCOUNTS, &7, &(EACH - 1))).unwrap();
}

#[test]
fn there_is_always_an_audit_and_it_sees_what_is_missing() {
    let (db, _) = loaded();
    let audits = Auditor::of(db.clone(), BANK.sum()).ends().unwrap();
    assert!(audits.made > 0 && audits.gave_way == 0, "{audits:?}");
    lose_a_cent(&db);
    let found = Auditor::of(db, BANK.sum()).ends().unwrap_err();
    assert_eq!(
        found,
        "an audit found 1999999 cents in 20 accounts, not 2000000"
    );
}

#[test]
fn an_audit_that_was_wrong_fails_the_check_even_if_all_is_right_at_rest() {
    let (db, _) = loaded();
    let mut bank = Bank::new(BANK);
    bank.auditor = Some(Auditor::of(db.clone(), BANK.sum() + 1));
    let tally = Tally::new(BANK.kinds());
    let found = bank.check(&db, &tally).unwrap_err();
    assert!(found.starts_with("an audit found 2000000 cents"), "{found}");
    assert_eq!(bank.check(&db, &tally), Ok(()), "nobody audits any more");
}

#[test]
fn money_that_is_gone_at_rest_is_found_without_an_auditor_and_its_account_is_named() {
    let (db, mut loaded) = loaded();
    let tally = Tally::new(BANK.kinds());
    lose_a_cent(&db);
    let found = loaded.check(&db, &tally).unwrap_err();
    assert_eq!(
        found,
        "row 7 of transfer_accounts: the balance is 99999, but 100000 was loaded and 0 added by transfers that \
         committed"
    );
    db.run(|tx| tx.delete(&ACCOUNTS, &7)).unwrap();
    let found = loaded.check(&db, &tally).unwrap_err();
    assert!(found.contains('7'), "{found}");
}

#[test]
fn so_many_of_a_hundred_read_and_the_others_move_money() {
    for (reads, kinds) in [(0, [100, 0]), (100, [0, 100])] {
        let bank = Transfers { reads, ..BANK };
        let (db, _) = loaded();
        let mut loaded = Bank::new(bank);
        let mut client = loaded.client(&db, 0);
        let mut tally = Tally::new(KINDS);
        (0..100).for_each(|_| tally.count(client.transaction()));
        drop(client);
        assert_eq!([0, 1].map(|kind| tally.of_kind(kind, Outcome::Ok)), kinds);
        let left = db.run(|tx| tx.range(&ACCOUNTS, ..).collect()).unwrap();
        let untouched = left.iter().all(|&(_, cents)| cents == EACH);
        assert_eq!(untouched, reads == 100);
        assert_eq!(loaded.check(&db, &tally), Ok(()));
    }
}

#[test]
fn a_transfer_to_oneself_changes_nothing_and_one_to_others_no_sum() {
    let (db, _) = loaded();
    db.run(|tx| {
        transfer(tx, 3, 3, 50).unwrap();
        transfer(tx, 3, 4, 70).unwrap();
        Ok(())
    })
    .unwrap();
    let mut loaded = Bank::new(BANK);
    loaded.ledger.notes().add(3, -70);
    loaded.ledger.notes().add(4, 70);
    let has = |account| db.run(|tx| tx.get(&ACCOUNTS, &account)).unwrap();
    assert_eq!((has(3), has(4)), (Some(EACH - 70), Some(EACH + 70)));
    assert_eq!(loaded.check(&db, &Tally::new(BANK.kinds())), Ok(()));
}
