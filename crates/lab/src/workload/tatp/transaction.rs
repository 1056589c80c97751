//! The seven transactions, each a function of its inputs.

use std::hint::black_box;

use foxton::{Lock, Transaction};

use super::{
    ACCESS_INFOS, BY_NUMBER, CALL_FORWARDINGS, SPECIAL_FACILITIES, SUBSCRIBERS,
    row::{
        BIT_1, DATA_A, END_TIME, IS_ACTIVE, NUMBERX, SUBSCRIBER_BYTES, VLR_LOCATION, number,
        number_of, text,
    },
};
use crate::workload::attempt::{End, Failure};

type Ended = Result<End, Failure>;

fn gone(subscriber: u32) -> Failure {
    Failure::Wrong(format!(
        "row {subscriber} of {} is gone",
        SUBSCRIBERS.name()
    ))
}

fn found(is: bool) -> End {
    match is {
        true => End::Done,
        false => End::Missed,
    }
}

/// GetSubscriberData: every column of a subscriber.
///
/// # Errors
///
/// If the engine refuses an operation, or a row is missing. The same for each of these.
pub fn get_subscriber_data(tx: &mut Transaction, subscriber: u32) -> Ended {
    let expected = number_of(subscriber);
    let right = tx.get_with(&SUBSCRIBERS, &subscriber, |row| {
        black_box(row.iter().map(|&byte| u32::from(byte)).sum::<u32>());
        row.len() >= SUBSCRIBER_BYTES && number(row) == Some(text(&expected))
    })?;
    match right {
        Some(true) => Ok(End::Done),
        Some(false) => Err(Failure::Wrong(format!(
            "row {subscriber} of {} has another's number",
            SUBSCRIBERS.name()
        ))),
        None => Err(gone(subscriber)),
    }
}

/// GetNewDestination: where calls go at this service, between these hours, if it is active.
///
/// # Errors
///
/// As for the first.
pub fn get_new_destination(
    tx: &mut Transaction,
    service: (u32, u8),
    (start_time, end_time): (u8, u8),
) -> Ended {
    let active = tx.get_with(&SPECIAL_FACILITIES, &service, |row| {
        row.get(IS_ACTIVE) == Some(&1)
    })?;
    if active != Some(true) {
        return Ok(End::Missed);
    }
    let (subscriber, sf_type) = service;
    let mut destinations = 0;
    let all = (subscriber, sf_type, 0)..=(subscriber, sf_type, u8::MAX);
    tx.range(&CALL_FORWARDINGS, all)
        .for_each_bytes(|key, row| {
            let began = key.last().is_some_and(|&start| start <= start_time);
            if began && row.get(END_TIME).is_some_and(|&end| end > end_time) {
                black_box(row.get(NUMBERX));
                destinations += 1;
            }
        })?;
    Ok(found(destinations > 0))
}

/// GetAccessData: the data of an access.
///
/// # Errors
///
/// As for the first.
pub fn get_access_data(tx: &mut Transaction, access: (u32, u8)) -> Ended {
    let data = tx.get_with(&ACCESS_INFOS, &access, |row| {
        black_box(row.iter().map(|&byte| u32::from(byte)).sum::<u32>());
    })?;
    Ok(found(data.is_some()))
}

/// UpdateSubscriberData: a bit of a subscriber and a byte of its service, both or neither.
///
/// # Errors
///
/// As for the first.
pub fn update_subscriber_data(
    tx: &mut Transaction,
    (subscriber, sf_type): (u32, u8),
    (bit, data_a): (u8, u8),
) -> Ended {
    let row = tx.get_locked(&SUBSCRIBERS, &subscriber, Lock::Exclusive)?;
    let mut row = row
        .filter(|row| row.len() >= SUBSCRIBER_BYTES)
        .ok_or_else(|| gone(subscriber))?;
    row[BIT_1] = bit;
    tx.put(&SUBSCRIBERS, &subscriber, &row)?;
    let service = (subscriber, sf_type);
    let Some(mut row) = tx.get_locked(&SPECIAL_FACILITIES, &service, Lock::Exclusive)? else {
        return Ok(End::UndoneMissed);
    };
    row[DATA_A] = data_a;
    tx.put(&SPECIAL_FACILITIES, &service, &row)?;
    Ok(End::Done)
}

/// UpdateLocation: the location of the subscriber with this number.
///
/// # Errors
///
/// As for the first.
pub fn update_location(tx: &mut Transaction, subscriber: u32, location: u32) -> Ended {
    let number = number_of(subscriber);
    // Like an update statement, it requests the lock for writing at once, and not a second time.
    let found = tx.get_by_locked(&BY_NUMBER, text(&number), Lock::Exclusive)?;
    let (id, mut row) = found
        .filter(|(_, row)| row.len() >= SUBSCRIBER_BYTES)
        .ok_or_else(|| gone(subscriber))?;
    same(subscriber, id)?;
    row[VLR_LOCATION].copy_from_slice(&location.to_le_bytes());
    tx.put(&SUBSCRIBERS, &id, &row)?;
    Ok(End::Done)
}

/// InsertCallForwarding, for the subscriber with this number; the service must exist, and the hour
/// must be free.
///
/// # Errors
///
/// As for the first.
pub fn insert_call_forwarding(
    tx: &mut Transaction,
    (subscriber, sf_type): (u32, u8),
    start_time: u8,
    row: &[u8],
) -> Ended {
    let id = by_number(tx, subscriber)?;
    let mut types = 0u64;
    tx.range(&SPECIAL_FACILITIES, (id, 0)..=(id, u8::MAX))
        .for_each_bytes(|key, _| types += u64::from(key.last().copied().unwrap_or(0)))?;
    black_box(types);
    let service = tx.get_with(&SPECIAL_FACILITIES, &(id, sf_type), |_| ())?;
    if service.is_none() {
        return Ok(End::Ruled);
    }
    match tx.insert(&CALL_FORWARDINGS, &(id, sf_type, start_time), row) {
        Ok(()) => Ok(End::Done),
        Err(error) if error.code() == "key_exists" => Ok(End::Ruled),
        Err(error) => Err(error.into()),
    }
}

/// DeleteCallForwarding, of the subscriber with this number.
///
/// # Errors
///
/// As for the first.
pub fn delete_call_forwarding(
    tx: &mut Transaction,
    (subscriber, sf_type): (u32, u8),
    start_time: u8,
) -> Ended {
    let id = by_number(tx, subscriber)?;
    let was_there = tx.delete(&CALL_FORWARDINGS, &(id, sf_type, start_time))?;
    Ok(found(was_there))
}

fn by_number(tx: &mut Transaction, subscriber: u32) -> Result<u32, Failure> {
    let number = number_of(subscriber);
    let found = tx.get_by(&BY_NUMBER, text(&number))?;
    let (id, _) = found.ok_or_else(|| gone(subscriber))?;
    same(subscriber, id)?;
    Ok(id)
}

fn same(drawn: u32, found: u32) -> Result<(), Failure> {
    match drawn == found {
        true => Ok(()),
        false => Err(Failure::Wrong(format!(
            "the number of subscriber {drawn} leads to subscriber {found}"
        ))),
    }
}
