//! Checks of an idle database: the rows of the load except what transactions change, the call
//! forwardings inserted and not deleted, and a one-to-one mapping of numbers and subscribers.

use std::{fmt::Debug, ops::Bound};

use foxton::{Database, Transaction};

use super::{
    ACCESS_INFOS, BY_NUMBER, CALL_FORWARDINGS, SPECIAL_FACILITIES, START_TIMES, SUBSCRIBERS, Shape,
    client::{DELETE, INSERT},
    initial::{self, Facility},
    row::{BIT_1, CALL_FORWARDING_BYTES, DATA_A, END_TIME, NUMBERX, VLR_LOCATION, number_of, text},
};
use crate::{
    measure::outcome::{Outcome, Tally},
    workload::loading::pieces,
};

/// Subscribers looked at in one transaction.
const SUBSCRIBERS_A_TRANSACTION: u32 = 250;

/// Compares every table and the index with the load and with the clients' reports.
///
/// # Errors
///
/// The first thing found wrong, as a sentence.
pub fn check(db: &Database, shape: &Shape, ended: &Tally) -> Result<(), String> {
    let (mut loaded, mut found) = (0, 0);
    for ids in pieces(shape.subscribers, SUBSCRIBERS_A_TRANSACTION) {
        let mut tx = db.begin().map_err(|error| error.to_string())?;
        let mut look = Look {
            tx: &mut tx,
            shape,
            ids: (*ids.start(), *ids.end()),
        };
        let facilities = look.facilities();
        look.subscribers()?;
        look.access_infos()?;
        look.special_facilities(&facilities)?;
        found += look.call_forwardings(&facilities)?;
        loaded += facilities
            .iter()
            .map(|(_, facility)| facility.forwardings.len() as u64)
            .sum::<u64>();
        tx.commit().map_err(|error| error.to_string())?;
    }
    let [inserted, deleted] = [INSERT, DELETE].map(|kind| ended.of_kind(kind, Outcome::Ok));
    // More may be deleted than there ever were; then that is the error.
    match found + deleted == loaded + inserted {
        true => Ok(()),
        false => Err(format!(
            "{} has {found} rows; {loaded} were loaded, {inserted} inserted and {deleted} deleted",
            CALL_FORWARDINGS.name()
        )),
    }
}

/// The rows of a few subscribers.
struct Look<'a> {
    tx: &'a mut Transaction,
    shape: &'a Shape,
    ids: (u32, u32),
}

fn unreadable(table: &str) -> impl Fn(foxton::Error) -> String {
    move |error| format!("{table} cannot be read: {error}")
}

impl Look<'_> {
    /// The ids to check: rows before the first or after the last subscriber should not exist, and
    /// are found with the others.
    fn reach(&self) -> (u32, u32) {
        let (first, last) = self.ids;
        let low = if first == 1 { 0 } else { first };
        let high = if last == self.shape.subscribers {
            u32::MAX
        } else {
            last
        };
        (low, high)
    }

    fn facilities(&self) -> Vec<(u32, Facility)> {
        let of = |id| initial::facilities(self.shape, id).into_iter();
        let ids = self.ids.0..=self.ids.1;
        ids.flat_map(|id| of(id).map(move |facility| (id, facility)))
            .collect()
    }

    fn subscribers(&mut self) -> Result<(), String> {
        let ((first, last), (low, high)) = (self.ids, self.reach());
        let found = self.tx.range(&SUBSCRIBERS, low..=high).collect();
        let found = found.map_err(unreadable(SUBSCRIBERS.name()))?;
        for (id, row) in &found {
            if row.get(BIT_1).is_none_or(|&bit| bit > 1) {
                return Err(format!(
                    "bit_1 of row {id} of {} is no bit",
                    SUBSCRIBERS.name()
                ));
            }
        }
        let expected = (first..=last).map(|id| (id, initial::subscriber(self.shape, id)));
        compare(SUBSCRIBERS.name(), expected, found, |at| {
            at == BIT_1 || VLR_LOCATION.contains(&at)
        })?;
        let (lowest, highest) = (number_of(first), number_of(last));
        let bounds = (
            match low {
                0 => Bound::Unbounded,
                _ => Bound::Included(text(&lowest)),
            },
            match high {
                u32::MAX => Bound::Unbounded,
                _ => Bound::Included(text(&highest)),
            },
        );
        let entries = self.tx.range_by(&BY_NUMBER, bounds);
        let entries = entries
            .collect()
            .map_err(unreadable(BY_NUMBER.name()))?
            .into_iter()
            .map(|(number, id, _)| (number, id));
        let expected = (first..=last).map(|id| (text(&number_of(id)).to_owned(), id));
        one_to_one(expected, entries)
    }

    fn access_infos(&mut self) -> Result<(), String> {
        let ((first, last), (low, high)) = (self.ids, self.reach());
        let range = (low, 0)..=(high, u8::MAX);
        let found = self.tx.range(&ACCESS_INFOS, range).collect();
        let found = found.map_err(unreadable(ACCESS_INFOS.name()))?;
        let of = |id| initial::access_infos(self.shape, id).into_iter();
        let expected =
            (first..=last).flat_map(|id| of(id).map(move |(ai_type, row)| ((id, ai_type), row)));
        compare(ACCESS_INFOS.name(), expected, found, |_| false)
    }

    fn special_facilities(&mut self, loaded: &[(u32, Facility)]) -> Result<(), String> {
        let (low, high) = self.reach();
        let range = (low, 0)..=(high, u8::MAX);
        let found = self.tx.range(&SPECIAL_FACILITIES, range).collect();
        let found = found.map_err(unreadable(SPECIAL_FACILITIES.name()))?;
        let expected = loaded
            .iter()
            .map(|(id, facility)| ((*id, facility.sf_type), facility.row.clone()));
        compare(SPECIAL_FACILITIES.name(), expected, found, |at| {
            at == DATA_A
        })
    }

    /// Each refers to a facility, which is that of the load by now, and must be valid. With three
    /// start times there are at most three at one facility. Returns their number.
    fn call_forwardings(&mut self, facilities: &[(u32, Facility)]) -> Result<u64, String> {
        let (low, high) = self.reach();
        let range = (low, 0, 0)..=(high, u8::MAX, u8::MAX);
        let name = CALL_FORWARDINGS.name();
        let found = self.tx.range(&CALL_FORWARDINGS, range).collect();
        let found = found.map_err(unreadable(name))?;
        for ((id, sf_type, start_time), row) in &found {
            let wrong = |what: &str| {
                let key = (id, sf_type, start_time);
                Err(format!("row {key:?} of {name} {what}"))
            };
            let of = |(other, facility): &(u32, Facility)| (*other, facility.sf_type);
            if facilities
                .binary_search_by_key(&(*id, *sf_type), of)
                .is_err()
            {
                return wrong("refers to no facility");
            }
            if !START_TIMES.contains(start_time) {
                return wrong("begins at another hour than 0, 8 or 16");
            }
            if row.len() < CALL_FORWARDING_BYTES || !(1..=24).contains(&row[END_TIME]) {
                return wrong("ends at no hour of the day");
            }
            if !row[NUMBERX].iter().all(u8::is_ascii_digit) {
                return wrong("leads to no number");
            }
        }
        Ok(found.len() as u64)
    }
}

/// Checks that the rows found are the expected ones, except the bytes of each row that may have
/// changed.
pub(crate) fn compare<K: Ord + Debug>(
    table: &str,
    expected: impl Iterator<Item = (K, Vec<u8>)>,
    found: Vec<(K, Vec<u8>)>,
    may_change: impl Fn(usize) -> bool,
) -> Result<(), String> {
    let mut found = found.into_iter().peekable();
    for (key, row) in expected {
        if let Some((odd, _)) = found.next_if(|(other, _)| *other < key) {
            return Err(format!("row {odd:?} of {table} was never loaded"));
        }
        let Some((_, other)) = found.next_if(|(other, _)| *other == key) else {
            return Err(format!("row {key:?} of {table} is gone"));
        };
        let mut bytes = row.iter().zip(&other).enumerate();
        let alike = bytes.all(|(at, (expected, found))| expected == found || may_change(at));
        if !alike || row.len() != other.len() {
            return Err(format!("row {key:?} of {table} is not what was loaded"));
        }
    }
    match found.next() {
        Some((odd, _)) => Err(format!("row {odd:?} of {table} was never loaded")),
        None => Ok(()),
    }
}

fn one_to_one(
    expected: impl Iterator<Item = (String, u32)>,
    mut entries: impl Iterator<Item = (String, u32)>,
) -> Result<(), String> {
    let name = BY_NUMBER.name();
    for (number, id) in expected {
        match entries.next() {
            Some(entry) if entry == (number.clone(), id) => {}
            Some((other, to)) => {
                return Err(format!(
                    "{name}: where {number} should lead to {id}, {other} leads to {to}"
                ));
            }
            None => return Err(format!("{name}: {number} leads nowhere")),
        }
    }
    match entries.next() {
        Some((other, to)) => Err(format!("{name}: {other} leads to {to}, once too often")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_is_not_one_to_one_is_told_by_its_entry() {
        let entries = |ids: &[u32]| -> Vec<(String, u32)> {
            ids.iter().map(|&id| (format!("n{id}"), id)).collect()
        };
        let compare =
            |found: Vec<(String, u32)>| one_to_one(entries(&[1, 2]).into_iter(), found.into_iter());
        assert_eq!(compare(entries(&[1, 2])), Ok(()));
        let missing = compare(entries(&[1])).unwrap_err();
        assert!(missing.ends_with("n2 leads nowhere"), "{missing}");
        let twice = compare(entries(&[1, 2, 3])).unwrap_err();
        assert!(twice.contains("n3 leads to 3, once too often"), "{twice}");
        let other = compare(vec![("n1".into(), 2), ("n2".into(), 2)]).unwrap_err();
        assert!(
            other.contains("where n1 should lead to 1, n1 leads to 2"),
            "{other}"
        );
    }
}
