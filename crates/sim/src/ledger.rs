//! The ledger: a TPC-B-like load, and what must be found afterwards.
//!
//! Nothing here touches a database. A client's n-th transaction is a pure function of the seed, the
//! client and n. So the set of committed transactions determines every balance, and a database can
//! be checked exactly after a kill.
//!
//! # The load
//!
//! A transaction adds an amount to an account, to a teller and to a branch. It writes one row of
//! history under (client, number), and moves the client's *bookmark*: it deletes the row of its
//! last committed transaction and inserts one for this. So it updates, inserts and deletes, and
//! half a transaction is always noticed. Every thirteenth is rolled back by its client.
//!
//! If the `Scale` has notes, each transaction also replaces its client's *note* by one of its
//! own, of another length. Some notes are longer than a page.
//!
//! # What must hold
//!
//! * I1  A transaction that was acknowledged, and promised to survive, is there.
//! * I2  A transaction that was never begun, or was rolled back, is not there.
//! * I3  Of the transactions of a client that were begun and not acknowledged, those up to some
//!   point are there and none after it: nothing is lost from the middle.
//! * I4  Each transaction is there whole: history rows are as they were written, every balance is
//!   the sum of its history, every bookmark and every note is that of the client's last committed
//!   transaction.
//! * I5  The first load, one large transaction, is there whole or not at all.

use std::collections::{BTreeMap, BTreeSet};

/// Numbers of rows in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Number of branches.
    pub branches: u64,
    /// Number of tellers of all branches.
    pub tellers: u64,
    /// Number of accounts of all branches.
    pub accounts: u64,
    /// Maximum bytes of a note; 0 for none.
    pub note_bytes: u64,
}

impl Scale {
    /// Few enough rows that clients conflict all the time.
    pub const SMALL: Scale = Scale {
        branches: 2,
        tellers: 10,
        accounts: 200,
        note_bytes: 0,
    };
    /// The same, with notes of up to six pages of 1 KiB.
    pub const WITH_NOTES: Scale = Scale {
        note_bytes: 6 << 10,
        ..Scale::SMALL
    };
}

/// A row of history, which names everything that a transaction changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The account that got the amount.
    pub account: u64,
    /// The teller.
    pub teller: u64,
    /// The branch.
    pub branch: u64,
    /// The amount.
    pub amount: i64,
}

/// A transaction by client and number: the key of its history row.
pub type Number = (u32, u64);

/// A note, by what must be right of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// The transaction that left it.
    pub n: u64,
    /// Its length.
    pub bytes: usize,
    /// A hash of its bytes.
    pub hash: u64,
}

impl Note {
    /// Returns what is to be compared of a note with these bytes.
    pub fn of(bytes: &[u8]) -> Note {
        let hash = |hash, byte: &u8| mix(hash ^ u64::from(*byte));
        Note {
            n: note_number(bytes),
            bytes: bytes.len(),
            hash: bytes.iter().fold(0, hash),
        }
    }
}

/// Returns the number of the transaction that left this note.
pub fn note_number(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |first| u64::from_le_bytes(*first))
}

/// Returns the note that transaction `number` leaves: its number, and other bytes.
pub fn note(number: Number, scale: Scale) -> Vec<u8> {
    let draw = mix(mix(u64::from(number.0)) ^ number.1);
    let mut bytes = number.1.to_le_bytes().to_vec();
    let length = bytes.len() + (draw % scale.note_bytes.max(1)) as usize;
    bytes.extend(
        (0_u64..)
            .map(|at| mix(draw ^ at) as u8)
            .take(length - bytes.len()),
    );
    bytes
}

/// Returns what transaction `number` does.
pub fn entry(seed: u64, number: Number, scale: Scale) -> Entry {
    let draw = |what: u64| mix(mix(seed ^ mix(u64::from(number.0))) ^ mix(number.1) ^ what);
    let teller = draw(1) % scale.tellers;
    Entry {
        account: draw(2) % scale.accounts,
        teller,
        branch: teller % scale.branches,
        amount: (draw(3) % 1_999_999) as i64 - 999_999,
    }
}

/// True if the client rolls its n-th transaction back.
pub fn is_abandoned(n: u64) -> bool {
    n.is_multiple_of(13)
}

/// Scatters the bits of `word`: neighbours get nothing in common.
pub fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Contents of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// Balance of each account.
    pub accounts: BTreeMap<u64, i64>,
    /// Balance of each teller.
    pub tellers: BTreeMap<u64, i64>,
    /// Balance of each branch.
    pub branches: BTreeMap<u64, i64>,
    /// Every transaction that is there.
    pub history: BTreeMap<Number, Entry>,
    /// The bookmarks.
    pub bookmarks: BTreeSet<Number>,
    /// The note of each client.
    pub notes: BTreeMap<u32, Note>,
}

impl Contents {
    /// Returns the contents of a database after the load and `committed`.
    pub fn after(seed: u64, scale: Scale, committed: impl IntoIterator<Item = Number>) -> Contents {
        let zeros = |count| (0..count).map(|id| (id, 0)).collect();
        let mut contents = Contents {
            accounts: zeros(scale.accounts),
            tellers: zeros(scale.tellers),
            branches: zeros(scale.branches),
            ..Contents::default()
        };
        let mut last = BTreeMap::new();
        for number in committed {
            let entry = entry(seed, number, scale);
            *contents.accounts.entry(entry.account).or_default() += entry.amount;
            *contents.tellers.entry(entry.teller).or_default() += entry.amount;
            *contents.branches.entry(entry.branch).or_default() += entry.amount;
            contents.history.insert(number, entry);
            let last: &mut u64 = last.entry(number.0).or_default();
            *last = number.1.max(*last);
        }
        if scale.note_bytes > 0 {
            let left = |(&client, &n)| (client, Note::of(&note((client, n), scale)));
            contents.notes = last.iter().map(left).collect();
        }
        contents.bookmarks.extend(last);
        contents
    }
}

/// Knowledge, outside the database, of one client's transactions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expectation {
    /// Transactions that must be there.
    pub must: BTreeSet<u64>,
    /// Transactions that may be there: from the first of these to some point, and none after it.
    pub may: BTreeSet<u64>,
}

/// Everything that is known outside the database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expectations {
    /// True if the load was acknowledged.
    pub loaded: bool,
    /// One entry for each client.
    pub clients: BTreeMap<u32, Expectation>,
}

impl Expectations {
    /// Withdraws every promise: what must be there only may.
    pub fn promise_nothing(&mut self) {
        self.loaded = false;
        for expectation in self.clients.values_mut() {
            expectation.may.append(&mut expectation.must);
        }
    }

    /// Takes contents that were found right as those that must be there from now on.
    pub fn settle(&mut self, found: &Contents) {
        self.loaded |= !found.accounts.is_empty();
        for (&client, expectation) in &mut self.clients {
            let may = std::mem::take(&mut expectation.may);
            let there = may
                .into_iter()
                .filter(|&n| found.history.contains_key(&(client, n)));
            expectation.must.extend(there);
        }
    }
}

/// Compares `found` with `expected`. The faults are sentences, at most a dozen.
///
/// # Errors
///
/// Every way in which `found` breaks an invariant of this [module](self).
pub fn check(
    seed: u64,
    scale: Scale,
    expected: &Expectations,
    found: &Contents,
) -> Result<(), Vec<String>> {
    let mut faults = Vec::new();
    if *found == Contents::default() {
        if expected.loaded {
            faults.push("I1 the acknowledged load is lost".to_owned());
        }
        return if faults.is_empty() {
            Ok(())
        } else {
            Err(faults)
        };
    }
    for (&client, expectation) in &expected.clients {
        check_client(client, expectation, found, &mut faults);
    }
    for &(client, n) in found.history.keys() {
        let known = expected.clients.get(&client);
        if !known.is_some_and(|known| known.must.contains(&n) || known.may.contains(&n)) {
            faults.push(format!(
                "I2 client {client}, transaction {n} is there, but never committed"
            ));
        }
    }
    // The right contents if exactly these transactions are there, with their sums.
    let right = Contents::after(seed, scale, found.history.keys().copied());
    differences("I4 history", &found.history, &right.history, &mut faults);
    differences(
        "I4, I5 account",
        &found.accounts,
        &right.accounts,
        &mut faults,
    );
    differences("I4, I5 teller", &found.tellers, &right.tellers, &mut faults);
    differences(
        "I4, I5 branch",
        &found.branches,
        &right.branches,
        &mut faults,
    );
    differences("I4 note of client", &found.notes, &right.notes, &mut faults);
    for (client, n) in found.bookmarks.symmetric_difference(&right.bookmarks) {
        faults.push(format!(
            "I4 the bookmark of client {client} at {n} is wrong or missing"
        ));
    }
    faults.truncate(12);
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults)
    }
}

fn check_client(
    client: u32,
    expectation: &Expectation,
    found: &Contents,
    faults: &mut Vec<String>,
) {
    let there = |n: &u64| found.history.contains_key(&(client, *n));
    for n in expectation.must.iter().filter(|n| !there(n)) {
        faults.push(format!(
            "I1 client {client}, transaction {n} was acknowledged and is lost"
        ));
    }
    let mut missing = None;
    for n in &expectation.may {
        match (there(n), missing) {
            (false, None) => missing = Some(n),
            (true, Some(hole)) => faults.push(format!(
                "I3 client {client}, transaction {n} is there, but {hole} before it is not"
            )),
            _ => {}
        }
    }
}

fn differences<K: Ord + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
    what: &str,
    found: &BTreeMap<K, V>,
    right: &BTreeMap<K, V>,
    faults: &mut Vec<String>,
) {
    let keys: BTreeSet<&K> = found.keys().chain(right.keys()).collect();
    for key in keys {
        let (found, right) = (found.get(key), right.get(key));
        if found != right {
            faults.push(format!(
                "{what} {key:?} is {found:?}, but by its history {right:?}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    //! Each fault is injected and must be named, because a check that notices nothing is worth
    //! nothing.

    use super::*;

    const SEED: u64 = 7;
    const SCALE: Scale = Scale::SMALL;

    fn numbers(client: u32, n: std::ops::RangeInclusive<u64>) -> Vec<Number> {
        n.filter(|&n| !is_abandoned(n))
            .map(|n| (client, n))
            .collect()
    }

    fn committed() -> Vec<Number> {
        [numbers(0, 1..=20), numbers(1, 1..=30)].concat()
    }

    fn expected() -> Expectations {
        let set = |client, n| numbers(client, n).into_iter().map(|(_, n)| n).collect();
        let clients = [
            (
                0,
                Expectation {
                    must: set(0, 1..=20),
                    may: set(0, 21..=21),
                },
            ),
            (
                1,
                Expectation {
                    must: set(1, 1..=25),
                    may: set(1, 26..=40),
                },
            ),
        ];
        Expectations {
            loaded: true,
            clients: clients.into(),
        }
    }

    fn faults(change: impl FnOnce(&mut Contents)) -> String {
        let mut contents = Contents::after(SEED, SCALE, committed());
        change(&mut contents);
        check(SEED, SCALE, &expected(), &contents)
            .map_or_else(|faults| faults.join("\n"), |()| String::new())
    }

    #[test]
    fn a_right_database_has_no_faults() {
        assert_eq!(faults(|_| ()), "");
    }

    #[test]
    fn a_pending_transaction_may_be_there_and_may_not() {
        let with = [committed(), vec![(0, 21)]].concat();
        let contents = Contents::after(SEED, SCALE, with);
        assert_eq!(check(SEED, SCALE, &expected(), &contents), Ok(()));
    }

    #[test]
    fn a_lost_commit_is_noticed() {
        let without = committed().into_iter().filter(|&number| number != (0, 20));
        let contents = Contents::after(SEED, SCALE, without);
        let faults = check(SEED, SCALE, &expected(), &contents).unwrap_err();
        assert_eq!(
            faults,
            ["I1 client 0, transaction 20 was acknowledged and is lost"]
        );
    }

    #[test]
    fn a_hole_is_noticed() {
        let without = committed().into_iter().filter(|&number| number != (1, 27));
        let contents = Contents::after(SEED, SCALE, without);
        let faults = check(SEED, SCALE, &expected(), &contents).unwrap_err();
        assert!(
            faults[0].starts_with("I3 client 1, transaction 28 is there, but 27"),
            "{faults:?}"
        );
    }

    #[test]
    fn half_a_transaction_is_noticed_whichever_half() {
        let entry = entry(SEED, (0, 20), SCALE);
        type Half = fn(&mut Contents, Entry);
        let halves: [(&str, Half); 5] = [
            ("I4, I5 account", |found, entry| {
                *found.accounts.get_mut(&entry.account).unwrap() -= entry.amount;
            }),
            ("I4, I5 teller", |found, entry| {
                *found.tellers.get_mut(&entry.teller).unwrap() -= entry.amount;
            }),
            ("I4, I5 branch", |found, entry| {
                *found.branches.get_mut(&entry.branch).unwrap() -= entry.amount;
            }),
            ("I1 client 0, transaction 20", |found, _| {
                _ = found.history.remove(&(0, 20))
            }),
            ("I4 the bookmark of client 0 at 20", |found, _| {
                found.bookmarks.remove(&(0, 20));
            }),
        ];
        for (named, half) in halves {
            let faults = faults(|found| half(found, entry));
            assert!(faults.contains(named), "{named}: {faults}");
        }
    }

    #[test]
    fn an_old_note_and_a_changed_one_are_noticed() {
        let scale = Scale::WITH_NOTES;
        let right = || Contents::after(SEED, scale, committed());
        assert_eq!(check(SEED, scale, &expected(), &right()), Ok(()));
        let left: BTreeSet<usize> = (1..30).map(|n| note((0, n), scale).len()).collect();
        assert!(left.len() > 20 && left.iter().any(|bytes| *bytes > 4096));
        for wrong in [note((0, 19), scale), vec![0; 9]] {
            let mut found = right();
            found.notes.insert(0, Note::of(&wrong));
            let faults = check(SEED, scale, &expected(), &found).unwrap_err();
            assert!(faults[0].starts_with("I4 note of client 0"), "{faults:?}");
        }
        let mut found = right();
        found.notes.remove(&1);
        assert!(check(SEED, scale, &expected(), &found).is_err());
    }

    #[test]
    fn a_rolled_back_or_unknown_transaction_is_noticed() {
        let entry = entry(SEED, (0, 13), SCALE);
        assert!(faults(|found| _ = found.history.insert((0, 13), entry)).contains("I2"));
        assert!(faults(|found| _ = found.history.insert((9, 1), entry)).contains("I2"));
    }

    #[test]
    fn a_bookmark_left_behind_is_noticed() {
        assert!(faults(|found| _ = found.bookmarks.insert((0, 19))).contains("client 0 at 19"));
    }

    #[test]
    fn half_a_load_is_noticed() {
        assert!(faults(|found| _ = found.accounts.remove(&199)).contains("I4, I5 account 199"));
        let nothing = Contents::default();
        assert!(check(SEED, SCALE, &expected(), &nothing).unwrap_err()[0].contains("load is lost"));
        assert_eq!(
            check(SEED, SCALE, &Expectations::default(), &nothing),
            Ok(())
        );
    }

    #[test]
    fn contents_that_were_found_once_must_be_found_again() {
        let mut expected = expected();
        expected.settle(&Contents::after(SEED, SCALE, committed()));
        assert!(expected.clients[&1].must.contains(&30));
        assert!(!expected.clients[&1].must.contains(&31));
        assert!(expected.clients[&1].may.is_empty());
    }
}
