//! The client: draws a transaction by the mix, draws its inputs, runs it once.

use std::sync::Arc;

use foxton::Database;

use super::{
    START_TIMES, Shape, initial,
    row::NUMBER_BYTES,
    transaction::{
        delete_call_forwarding, get_access_data, get_new_destination, get_subscriber_data,
        insert_call_forwarding, update_location, update_subscriber_data,
    },
};
use crate::{
    driver::Client,
    measure::outcome::Ended,
    random::Random,
    workload::attempt::{once, once_read},
};

/// The types of transaction, as they are named in results.
pub const KINDS: &[&str] = &[
    "GetSubscriberData",
    "GetNewDestination",
    "GetAccessData",
    "UpdateSubscriberData",
    "UpdateLocation",
    "InsertCallForwarding",
    "DeleteCallForwarding",
];

/// The place of UpdateLocation among [`KINDS`].
pub const UPDATE_LOCATION: usize = 4;
/// The place of inserts among [`KINDS`].
pub const INSERT: usize = 5;
/// The place of deletes among [`KINDS`].
pub const DELETE: usize = 6;

/// Draws a subscriber.
pub fn draw_subscriber(random: &mut Random, shape: &Shape) -> u32 {
    let count = u64::from(shape.subscribers);
    let drawn = match shape.uniform {
        true => random.uniform(1, count),
        false => random.non_uniform(shape.skew(), 1, count, 0),
    };
    drawn as u32
}

/// A client of tatp.
#[derive(Debug)]
pub struct TatpClient {
    db: Database,
    shape: Arc<Shape>,
    random: Random,
}

impl TatpClient {
    /// Client `number`; no two that ever run on one database may share it.
    pub fn new(db: Database, shape: Arc<Shape>, number: u32) -> TatpClient {
        let workload = u64::from_be_bytes(*b"tatp_run");
        let random = Random::seeded(&[shape.seed, workload, u64::from(number)]);
        TatpClient { db, shape, random }
    }
}

impl Client for TatpClient {
    fn transaction(&mut self) -> Ended {
        let TatpClient { db, shape, random } = self;
        let kind = random.weighted(&shape.mix.weights());
        let named = (KINDS, kind);
        let subscriber = draw_subscriber(random, shape);
        // A type of access, or of service: whichever this transaction needs.
        let of_type = (subscriber, random.uniform(1, 4) as u8);
        let start_time = START_TIMES[random.uniform(0, 2) as usize];
        let end_time = random.uniform(1, 24) as u8;
        match kind {
            0 => once_read(db, named, |tx| get_subscriber_data(tx, subscriber)),
            1 => once_read(db, named, |tx| {
                get_new_destination(tx, of_type, (start_time, end_time))
            }),
            2 => once_read(db, named, |tx| get_access_data(tx, of_type)),
            3 => {
                let (bit, data_a) = (random.uniform(0, 1) as u8, random.uniform(0, 255) as u8);
                once(db, named, |tx| {
                    update_subscriber_data(tx, of_type, (bit, data_a))
                })
            }
            UPDATE_LOCATION => {
                let location = initial::location(random);
                once(db, named, |tx| update_location(tx, subscriber, location))
            }
            INSERT => {
                let mut number = [0; NUMBER_BYTES];
                random.fill_digits(&mut number);
                let row = initial::forwarding(shape, end_time, &number);
                once(db, named, |tx| {
                    insert_call_forwarding(tx, of_type, start_time, &row)
                })
            }
            _ => once(db, named, |tx| {
                delete_call_forwarding(tx, of_type, start_time)
            }),
        }
    }
}
